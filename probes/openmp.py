"""What is loaded into this interpreter, what its OpenMP calls are bound to, and what importing certain modules changes.

Run by harness in the target's interpreter: `openmp.py LIBRARY` lists this process through libharness, by ctypes, and
prints one JSON line. `openmp.py LIBRARY REPORT GATE MODULE…` imports the modules in that order, then uses each of them
for a moment; at the start and after every step a JSON line goes to the descriptor REPORT, and a byte is awaited at
GATE. Calls no OpenMP function itself and makes no callback.
"""

import ctypes
import json
import os
import sys
from importlib import import_module
from sysconfig import get_platform


class Image(ctypes.Structure):
    _fields_ = [
        ("base", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("path", ctypes.c_uint32),
        ("defines", ctypes.c_uint32),
    ]


class Call(ctypes.Structure):
    _fields_ = [
        ("slot", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("image", ctypes.c_uint32),
        ("target", ctypes.c_int32),
        ("name", ctypes.c_uint32),
        ("lazy", ctypes.c_uint32),
    ]


class Listing(ctypes.Structure):
    _fields_ = [
        ("images", ctypes.POINTER(Image)),
        ("calls", ctypes.POINTER(Call)),
        ("text", ctypes.POINTER(ctypes.c_char)),
        ("image_room", ctypes.c_uint32),
        ("call_room", ctypes.c_uint32),
        ("text_room", ctypes.c_uint32),
        ("image_count", ctypes.c_uint32),
        ("call_count", ctypes.c_uint32),
        ("text_count", ctypes.c_uint32),
    ]


def list_loaded(library):
    native = ctypes.CDLL(library)
    for name, shape in (("harness_image", Image), ("harness_call", Call), ("harness_listing", Listing)):
        if native.harness_size(name.encode()) != ctypes.sizeof(shape):
            raise ValueError(f"{library} was built from another version of its header")
    room = (512, 2048, 1 << 17)
    while True:
        images, calls, text = (Image * room[0])(), (Call * room[1])(), (ctypes.c_char * room[2])()
        listing = Listing(images, calls, ctypes.cast(text, ctypes.POINTER(ctypes.c_char)), *room)
        if native.harness_list_images(ctypes.byref(listing)):
            break
        room = (listing.image_count, listing.call_count, listing.text_count)
    strings = text.raw

    def string(at):
        return strings[at : strings.index(b"\0", at)].decode("utf-8", "replace")

    return {
        "images": [[string(row.path), row.base, row.size] for row in images[: listing.image_count]],
        "calls": [[row.image, string(row.name), row.slot, row.value] for row in calls[: listing.call_count]],
    }


def describe(library):
    seen = {"pid": os.getpid(), "python": ".".join(map(str, sys.version_info[:3])), "platform": get_platform()}
    seen.update(images=[], calls=[])
    if library is None:
        seen["error"] = "no library to list with was given"
        return seen
    try:
        seen.update(list_loaded(library))
    except Exception as error:
        seen["error"] = f"{type(error).__name__}: {error}"
    return seen


def use_torch():
    torch = import_module("torch")
    many = torch.ones(1 << 20)
    square = torch.ones(512, 512)
    return float((many * 2).sum() + (square @ square).sum())


def use_faiss():
    vectors = import_module("numpy").ones((2000, 64), dtype="float32")
    index = import_module("faiss").IndexFlatIP(64)
    index.add(vectors)
    return index.search(vectors[:500], 4)


def use_numpy():
    square = import_module("numpy").ones((512, 512))
    return square.dot(square)


def use_scipy():
    return import_module("scipy.linalg").inv(import_module("numpy").eye(256) * 2)


def use_sklearn():
    points = import_module("numpy").arange(2000.0).reshape(1000, 2)
    return import_module("sklearn.cluster").KMeans(n_clusters=2, n_init=1, max_iter=2).fit(points)


# Something small that makes the library use its threads.
USES = {"torch": use_torch, "faiss": use_faiss, "numpy": use_numpy, "scipy": use_scipy, "sklearn": use_sklearn}


def describe_error(error):
    try:
        return str(error)[:500]
    except Exception:
        return "it cannot be told"


def attempt(work):
    """Null, or what was raised; a module may even call sys.exit()."""
    try:
        work()
    except BaseException as error:
        missing = getattr(error, "name", None) if isinstance(error, ImportError) else None
        return {"type": type(error).__name__, "text": describe_error(error), "missing": missing}
    return None


def walk_through(library, report, gate, modules):
    for descriptor in (report, gate):
        os.set_inheritable(descriptor, False)  # a program that a module starts must not keep them open

    def tell(step, module, error):
        data = json.dumps({"step": step, "module": module, "error": error, "seen": describe(library)}).encode() + b"\n"
        while data:
            data = data[os.write(report, data) :]
        os.read(gate, 1)

    tell("start", None, None)
    imported = []
    for module in modules:
        error = attempt(lambda name=module: import_module(name))
        if error is None:
            imported.append(module)
        tell("import", module, error)
    for module in imported:
        use = USES.get(module.partition(".")[0])
        error = attempt(use) if use else {"type": "Unknown", "text": "", "missing": None}
        tell("use", module, error)
    os._exit(0)  # what happens at the end of an interpreter is another question


if len(sys.argv) > 3:
    walk_through(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
else:
    print(json.dumps(describe(sys.argv[1] if len(sys.argv) > 1 else None)))
