"""When in the life of the program it died: while something was imported, in a static constructor, at its exit.

Read from the frames of the thread that died, outside of which nothing is known. Words for the headline; judges nobody.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from harness.diagnose.frames import innermost_user_frame
from harness.diagnose.plumbing import image_name, is_interpreter, is_plumbing, plain_function
from harness.documents.verdict import Frame
from harness.evidence.crash import CrashFrame

_CONSTRUCTS = re.compile(r"call_init|_dl_init|call_array|do_init_fini")
_DESTROYS = re.compile(r"_dl_fini|_dl_call_fini|call_fini|__cxa_finalize|__do_global_dtors_aux")
_OPENS = re.compile(r"_*dlm?open(?:_implementation|_doit)?|_dl_open|dl_open_worker\w*|_dl_catch_\w+|_dlerror_run")
# Not __cxa_finalize, which dlclose() calls as well, nor __call_tls_dtors, which ends each thread.
_EXITS = re.compile(r"__run_exit_handlers|exit|_dl_fini")
_FINALISES = re.compile(
    r"_?Py_Finalize(?:Ex|_impl)?|finalize_modules|PyImport_Cleanup|_PyGC_CollectNoFail|finalize_interp_\w+"
    r"|_PyAtExit_Call|atexit_callfuncs|wait_for_thread_shutdown"
)
_MAIN = re.compile(r"Py_RunMain|Py_BytesMain|Py_Main")
_RUNS = re.compile(r"_?PyEval_EvalCode(?:Ex)?|_?PyRun_\w+|pymain_run_\w+|Py_InitializeFromConfig")
_STARTS = re.compile(r"<frozen (?:runpy|importlib)|/runpy\.py$|/importlib/")
_LOADER = re.compile(r"ld-linux[\w-]*\.so.*|ld-musl-.*|ld-[\d.]+\.so|ld64\.so.*")
_IMPORTING = re.compile(r"<frozen importlib\._bootstrap(?:_external)?>|.*/importlib/_bootstrap(?:_external)?\.py")
_INIT = re.compile(r"PyInit_(?P<module>\w+)")
_INSTALLED = re.compile(r"/(?:site-packages|dist-packages|lib-dynload|python\d\.\d+t?)/(?P<path>.+)$")


def tell_phase(native: tuple[CrashFrame, ...], python: tuple[Frame, ...]) -> str:
    """ ", in a static constructor of x.so, during import of x"; empty where it simply ran. Innermost frames first."""
    believed = [frame for frame in native if frame.kind == "native" and not frame.guessed]
    return "".join(
        f", {words}"
        for words in (_tell_static(native), _tell_exit(believed, python), _tell_import(native, python))
        if words
    )


def _tell_static(frames: tuple[CrashFrame, ...]) -> str | None:
    """The loader calls constructors and destructors, and hardly anything else that is not its own."""
    own: list[CrashFrame] = []
    for frame in frames:
        if frame.kind == "python" or frame.guessed:
            break
        own.append(frame)
    for index, frame in enumerate(own):
        inside, outside = own[:index], own[index + 1 :]
        if not inside or is_plumbing(inside[-1]) or not is_plumbing(frame):
            continue
        image = image_name(inside[-1].image)
        if _is(_DESTROYS, frame):
            return f"in a static destructor of {image}"
        nameless = plain_function(frame) is None and _LOADER.fullmatch(image_name(frame.image)) is not None
        if _is(_CONSTRUCTS, frame) or (nameless and any(_is(_OPENS, outer) for outer in outside)):
            return f"in a static constructor of {image}"
        if nameless and _has_left_main(outside):
            return f"in a static destructor of {image}, while the process was exiting"
    return None


def _has_left_main(outside: list[CrashFrame]) -> bool:
    """Nothing but the C library is left between the loader and where the process started: exit() called it."""
    return all(map(is_plumbing, outside)) and [plain_function(frame) for frame in outside[-1:]] == ["_start"]


def _tell_exit(frames: list[CrashFrame], python: tuple[Frame, ...]) -> str | None:
    inside = [frame for frame in frames if is_interpreter(frame.image)]
    if any(_is(_FINALISES, frame) for frame in inside) or _has_run_all(inside, python):
        return "at interpreter exit, after the program's own code had ended"
    if any(_is(_EXITS, frame) and is_plumbing(frame) for frame in frames):
        return "while the process was exiting"
    return None


def _has_run_all(inside: list[CrashFrame], python: tuple[Frame, ...]) -> bool:
    """In a stripped interpreter: its main function runs Python code, and it is not the program that it runs."""
    runs = any(_is(_MAIN, frame) for frame in inside) and not any(_is(_RUNS, frame) for frame in inside)
    outermost = python[-1] if python else None
    return runs and outermost is not None and outermost.function != "<module>" and not _STARTS.search(outermost.file)


def _tell_import(native: tuple[CrashFrame, ...], python: tuple[Frame, ...]) -> str | None:
    """What the user's own code imports, where its import statement is what was running."""
    user = innermost_user_frame(python)
    inside = python[: python.index(user)] if user else python
    if not any(_IMPORTING.fullmatch(frame.file) for frame in inside):
        return None
    modules = [frame for frame in inside if frame.function == "<module>" and not _IMPORTING.fullmatch(frame.file)]
    name = _module_name(modules[-1].file) if modules else _name_extension(native)
    return f"during import of {name}" if name else "during an import"


def _name_extension(native: tuple[CrashFrame, ...]) -> str | None:
    """By its init function; else by the file of the innermost code that is nobody else's."""
    own = [frame for frame in native if frame.kind == "native" and not frame.guessed]
    for frame in own:
        if found := _INIT.fullmatch(plain_function(frame) or ""):
            return found["module"]
    first = next((frame for frame in own if not is_plumbing(frame) and not is_interpreter(frame.image)), None)
    return _module_name(first.image) if first is not None and first.image else None


def _module_name(file: str) -> str:
    """ "torch._C" of …/site-packages/torch/_C.cpython-311-x86_64-linux-gnu.so; the file's own name elsewhere."""
    found = _INSTALLED.search(file)
    path = PurePath(found["path"].rpartition("-packages/")[2] if found else PurePath(file).name)
    parts = [*path.parts[:-1], path.name.partition(".")[0]]
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _is(pattern: re.Pattern[str], frame: CrashFrame) -> bool:
    return pattern.fullmatch(plain_function(frame) or "") is not None
