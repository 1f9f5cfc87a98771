"""Code that was compiled while the program ran: memory that can be executed and belongs to no file.

Tells it from the images, and which compilers are loaded that could have made it. Does not say which one did.
"""

from __future__ import annotations

import re

from msgspec import structs

from harness.diagnose.plumbing import image_name
from harness.evidence.crash import Crash, CrashFrame

JIT = "[JIT-compiled code]"
# Executable memory as compilers get it: without a name, named by prctl, or shared through a file that has no place.
_NAMELESS = re.compile(r"|\[anon:.*\]|\[heap\]|/memfd:.*|/dev/zero.*|/dev/shm/.*\(deleted\)|//anon.*|/SYSV.*")
# Distributions and libraries that make code at run time. oneDNN and FBGEMM in torch do, not only torch.compile.
_DISTRIBUTIONS = (
    *("numba", "llvmlite", "torch", "triton", "jaxlib", "tensorflow", "tensorflow-cpu", "cppyy-cling", "openvino"),
    *("lupa", "taichi", "wasmtime", "mini-racer", "mkl", "JPype1"),
)
_LIBRARIES = {
    "Java": re.compile(r"libjvm\.(so|dylib)"),
    "LuaJIT": re.compile(r"libluajit.*"),
    "PCRE2": re.compile(r"libpcre2-.*"),
    "LLVM": re.compile(r"libLLVM.*"),
}


def mark_jit(crash: Crash, frame: CrashFrame) -> CrashFrame:
    """The same frame, with a name for where it is, if that is such code."""
    if frame.kind == "python" or frame.image is not None or frame.address is None:
        return frame
    return structs.replace(frame, image=JIT) if is_jit(crash, frame.address) else frame


def is_jit(crash: Crash, address: str) -> bool:
    number = int(address, 16)
    return any(
        "x" in mapping.permissions
        and int(mapping.start, 16) <= number < int(mapping.end, 16)
        and _NAMELESS.fullmatch(mapping.path or "") is not None
        for mapping in crash.mappings
    )


def list_compilers(crash: Crash) -> list[str]:
    """ "numba 0.68.1": what is loaded that compiles at run time. llvmlite is numba's own."""
    found = [f"{name} {crash.packages[name]}" for name in _DISTRIBUTIONS if name in crash.packages]
    if "numba" in crash.packages:
        found = [name for name in found if not name.startswith("llvmlite ")]
    names = {image_name(image.path) for image in crash.images}
    return found + [name for name, pattern in _LIBRARIES.items() if any(pattern.fullmatch(one) for one in names)]


def tell_compilers(crash: Crash) -> str:
    """ "numba 0.68.1 is loaded"; empty where nothing known is."""
    names = list_compilers(crash)
    if not names:
        return ""
    *first, last = names
    return f"{', '.join(first)} and {last} are loaded" if first else f"{last} is loaded"
