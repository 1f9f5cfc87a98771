"""Faults whose place is innocent: memory that was damaged earlier, and calls into Python by a thread that may not.

An allocator or a garbage collector that stumbles was given nothing bad by its caller: what it follows was overwritten
or freed before. Says what was noticed and where; who did it, nobody can tell from the stack.
"""

from __future__ import annotations

import re
from itertools import pairwise

from harness.diagnose.plumbing import OUR_IMAGE, image_name, is_interpreter, is_plumbing, plain_function
from harness.evidence.crash import Crash, CrashFrame, CrashThread

# These take no pointer from whoever calls them: what they follow is their own.
_ALLOCATES = re.compile(
    r"(?:malloc|calloc|_int_malloc|malloc_consolidate|sysmalloc|unlink_chunk|tcache_get\w*|_int_memalign"
    r"|_?PyObject_(?:Malloc|Calloc)|_?PyMem_(?:Malloc|Calloc)|pymalloc_alloc|allocate_from_new_pool|new_arena"
    r"|_?PyObject_(?:GC_)?New(?:Var)?|_?PyObject_GC_(?:Malloc|Calloc|Alloc)|gc_alloc|_?PyType_(?:GenericAlloc|AllocNoTrack)"
    r"|_?mi_(?:heap_)?(?:malloc|zalloc|calloc)\w*|_mi_page_\w+|_mi_malloc_generic)"
)
_COLLECTS = re.compile(
    r"gc_collect\w*|collect|collect_(?:main|generations|with_callback)|_?PyGC_\w+|_PyGC_\w+|update_refs|subtract_refs"
    r"|visit_(?:decref|reachable|add_to_container)|move_unreachable|deduce_unreachable|untrack_(?:tuples|dicts)"
    r"|delete_garbage|finalize_garbage|handle_weakrefs|gc_list_\w+|move_legacy_finalizers|\w+_traverse"
)
# These take an object: a bad one may come from the caller, unless that is the interpreter itself.
_RELEASES = re.compile(
    r"_Py_Dealloc|\w+_dealloc|_?PyObject_Free|PyMem_Free|pymalloc_(?:free|realloc)|_?PyObject_GC_Del|address_in_range"
    r"|free|_int_free|tcache_put\w*|_?PyTrash_\w+|insert_to_(?:used|free)pool"
)
_LOOKS_UP = re.compile(r"lookdict\w*|_Py_dict_lookup\w*|unicodekeys_lookup_\w+|dictkeys_(?:string)?lookup\w*")
_EVALUATES = re.compile(r"_?PyEval_EvalFrame(?:Default|Ex)?|_TAIL_CALL_\w+")
# What calls a C function for Python; and the interface for extensions, which Python's own functions use as well.
_CALLS_C = re.compile(r"cfunction_(?:vectorcall_\w+|call\w*)")
_INTERFACE = re.compile(r"Py[A-Z]\w*_\w+")
_FREE_THREADED = re.compile(r"/(?:lib)?python\d\.\d+t(?:$|[/.])")
# What may be called without the GIL; and where a thread waits for it.
_NEEDS_NO_GIL = re.compile(
    r"PyGILState_\w+|PyEval_(?:Acquire|Restore|Save|Release)\w+|take_gil|drop_gil|PyMem_Raw\w+|_PyMem_Raw\w+|Py_AddPendingCall"
    r"|_?PyThread_\w+|PyThreadState_\w+|_Py_Fatal\w+|Py_FatalError|fatal_error\w*|Py_Exit|Py_IsInitialized|t_bootstrap|thread_run"
    r"|pythread_wrapper|PyMutex_\w+|_PyMutex_\w+|_PyParkingLot_\w+"
)


def find_notice(frames: tuple[CrashFrame, ...], signame: str) -> CrashFrame | None:
    """The function that came upon damage done earlier; null where the place itself may be at fault."""
    own, outside = _interpreters_own(frames)
    patterns = [_ALLOCATES] if signame in ("SIGSEGV", "SIGABRT") else []
    if signame == "SIGSEGV":
        patterns += [_COLLECTS] if outside else [_COLLECTS, _RELEASES, _LOOKS_UP]
    return next((frame for frame in own if any(_is(pattern, frame) for pattern in patterns)), None)


def tell_notice(frame: CrashFrame) -> str:
    """What is certain: an allocator and a collector follow their own pointers, a release follows what it was given."""
    if _is(_ALLOCATES, frame) or _is(_COLLECTS, frame):
        return f"{plain_function(frame)} met memory that had been damaged earlier"
    return f"{plain_function(frame)} met an object that was freed or damaged earlier, or never was one"


def _interpreters_own(frames: tuple[CrashFrame, ...]) -> tuple[list[CrashFrame], bool]:
    """The frames before Python or anybody else's code, and whether somebody else is what follows them."""
    own: list[CrashFrame] = []
    for frame in frames:
        if frame.kind == "python" or frame.guessed or _is(_EVALUATES, frame):
            return own, False
        if not (is_plumbing(frame) or is_interpreter(frame.image)):
            return own, True
        own.append(frame)
    return own, False


def lacks_gil(crash: Crash, thread: CrashThread | None, frames: tuple[CrashFrame, ...]) -> bool:
    """It died in the interpreter's own code, called by somebody else's, and it had no right to be there.

    A free-threaded interpreter has no GIL to hold, but it must know the thread as well.
    """
    if thread is None or thread.holds_gil is not False:
        return False
    if thread.python_state is not False and any(_FREE_THREADED.search(image.path) for image in crash.images):
        return False
    own, outside = _interpreters_own(frames)
    called = [frame for frame in own if is_interpreter(frame.image)]
    return outside and bool(called) and not any(_is(_NEEDS_NO_GIL, frame) for frame in called)


def find_jump(frames: tuple[CrashFrame, ...]) -> CrashFrame | None:
    """The function of the C interface that some C function ended with: a jump, which leaves no frame of the latter."""
    own, _ = _interpreters_own(frames)
    return next((inner for inner, outer in pairwise(own) if _is(_CALLS_C, outer) and _is(_INTERFACE, inner)), None)


def list_foreign_code(crash: Crash) -> list[str]:
    """Extensions that did not come with the interpreter or the system: the packages, and files that belong to none."""
    owned = {
        f"{image.distribution} {image.version or ''}".strip()
        for image in crash.images
        if image.owner in ("wheel", "conda") and image.distribution and not OUR_IMAGE.fullmatch(image_name(image.path))
    }
    names = {
        image_name(image.path)
        for image in crash.images
        if image.owner == "unowned" and not is_interpreter(image.path) and "/lib-dynload/" not in image.path
    }
    return [*sorted(owned), *sorted(name for name in names if not OUR_IMAGE.fullmatch(name))]


def _is(pattern: re.Pattern[str], frame: CrashFrame) -> bool:
    return pattern.fullmatch(plain_function(frame) or "") is not None
