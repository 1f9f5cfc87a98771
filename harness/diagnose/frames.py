"""What the frames of one stack say together: its Python ones, the innermost of the user's, where a component begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from harness.diagnose.plumbing import is_interpreter, is_plumbing, plain_function
from harness.documents.verdict import Frame
from harness.evidence.crash import CrashFrame

_EVALUATION = re.compile(r"_?PyEval_EvalFrame(?:Default|Ex)?|_TAIL_CALL_\w+")
# Defined by a runtime and by nothing else, in static copies as well.
_OPENMP_FUNCTION = re.compile(r"(?:__kmp|kmp_flag|GOMP_|gomp_)\w*(?:::\w+)?")
_NOT_USER_CODE = re.compile(r"/(site|dist)-packages/|/lib/python\d\.\d+t?/|^<(?!string>|stdin>|ipython)")
_COMPREHENSIONS = frozenset({"<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>"})
# What stands between the interpreter and a program that it runs by `-m`.
_RUNS_MODULE = re.compile(r"<frozen runpy>|.*/runpy\.py")


def find_crossing(bases: Sequence[str | None], known: frozenset[str]) -> tuple[str, str] | None:
    """Bases of the images of a stack without its plumbing, innermost first: where one runtime calls another."""
    for called, calling in pairwise(bases):
        if called and calling and called != calling and {called, calling} <= known:
            return calling, called
    return None


def find_component_frame(frames: tuple[CrashFrame, ...]) -> CrashFrame | None:
    """The first frame that is not plumbing, and not the interpreter unless nothing else is left.

    Not beyond the innermost Python frame: who called that Python code did not do what it then did. An interpreter's
    frame without a symbol may be one, so the search ends there as well; and at the first frame that was only guessed.
    """
    interpreter: CrashFrame | None = None
    for frame in frames:
        if frame.kind == "python" or frame.guessed:
            break
        if is_plumbing(frame) or frame.image is None:
            continue
        if not is_interpreter(frame.image):
            return frame
        interpreter = interpreter or frame
        function = plain_function(frame)
        if function is None or _EVALUATION.fullmatch(function):
            break
    return interpreter


def list_python_frames(frames: tuple[CrashFrame, ...]) -> tuple[Frame, ...]:
    return tuple(
        Frame(frame.file, frame.line or 0, frame.function or "?")
        for frame in frames
        if frame.kind == "python" and frame.file
    )


def is_openmp_function(frame: CrashFrame) -> bool:
    return frame.kind == "native" and _OPENMP_FUNCTION.fullmatch(plain_function(frame) or "") is not None


def innermost_user_frame(frames: tuple[Frame, ...]) -> Frame | None:
    """`frames` start with the innermost. A comprehension is part of the function it stands in."""
    program = _started_program(frames)
    own = [frame for frame in frames if not _NOT_USER_CODE.search(frame.file) or frame.file == program]
    if program and _NOT_USER_CODE.search(program) and all(frame.file == program for frame in own):
        # Installed, and nothing else of the user's is there: then the whole package is the program.
        package = program.removesuffix("__main__.py")
        own = [frame for frame in frames if frame.file.startswith(package)]
    named = (frame for frame in own if frame.function not in _COMPREHENSIONS)
    return next(named, own[0] if own else None)


def _started_program(frames: tuple[Frame, ...]) -> str | None:
    """The file that the interpreter was asked to run, wherever it lies; null on a thread that has none at its base."""
    outer = next((frame for frame in reversed(frames) if not _RUNS_MODULE.fullmatch(frame.file)), None)
    is_program = outer is not None and outer.function == "<module>" and not outer.file.startswith("<")
    return outer.file if outer is not None and is_program else None
