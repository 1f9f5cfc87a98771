"""The stack of the thread that died, as a reader wants it: the innermost calls, without what only carries others.

Pure. Says nothing about who is to blame; a stack that no tool has read is no stack, and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import PurePath
from typing import NamedTuple

from harness.diagnose.death.crash.blame import crashed_thread
from harness.diagnose.death.reading import Reading
from harness.diagnose.plumbing import image_name, is_interpreter, is_plumbing, shorten_function, symbol_of
from harness.documents.verdict import Call, Frame, Stack
from harness.evidence.crash import CrashFrame

_MOST_OF_A_KIND = 5
# A recursion may have 60,000 frames: what is worth showing stands at its inner end.
_MOST_LOOKED_AT = 400
# What calls a C function for Python, or a Python one for C, unless it is what failed.
_GLUE = re.compile(r"(?:_ctypes|_cffi_backend)[.-].*")


class _Group(NamedTuple):
    """One place, and how often it stands there in a row: a recursion."""

    frame: CrashFrame
    times: int


def tell_stack(reading: Reading) -> Stack | None:
    frames = _frames_read(reading)
    if not frames:
        return None
    groups = list(islice(_group(frames), _MOST_LOOKED_AT))
    shown: list[_Group] = []
    for group in _leave_out_nameless(_leave_out_importing(_leave_out_carriers(groups))):
        if sum(other.frame.kind == group.frame.kind for other in shown) < _MOST_OF_A_KIND:
            shown.append(group)
    return Stack(tuple(map(_call, shown)), len(frames) - sum(group.times for group in shown))


def _leave_out_carriers(groups: list[_Group]) -> list[_Group]:
    """Glue and the interpreter's own frames are told where nothing else of the stack is native; libc where all is."""
    for is_carrier in (_carries_python, _carries, lambda frame: False):
        kept = [group for group in groups if group.frame.kind == "python" or not is_carrier(group.frame)]
        if any(group.frame.kind == "native" for group in kept):
            return kept
    return groups


def _leave_out_importing(groups: list[_Group]) -> list[_Group]:
    """Five frames of importlib stand between an import and the module, each time."""
    kept = [group for group in groups if not (group.frame.file or "").startswith("<frozen importlib.")]
    return kept if any(group.frame.kind == "python" for group in kept) else groups


def _leave_out_nameless(groups: list[_Group]) -> Iterator[_Group]:
    """Of several calls in a row that have no name the innermost one says in which image they are."""
    before = None
    for group in groups:
        nameless = group.frame.image if group.frame.function is None and group.frame.line is None else None
        if nameless is None or nameless != before:
            yield group
        before = nameless


def _carries_python(frame: CrashFrame) -> bool:
    return _carries(frame) or is_interpreter(frame.image) or _GLUE.fullmatch(image_name(frame.image)) is not None


def _carries(frame: CrashFrame) -> bool:
    return frame.image is None or is_plumbing(frame)


def _frames_read(reading: Reading) -> tuple[CrashFrame, ...]:
    thread = crashed_thread(reading.crash) if reading.crash else None
    if thread is not None and reading.blame is not None and any(frame.kind == "native" for frame in thread.frames):
        told = reading.blame.frames_below
        is_whole = any(frame.kind == "python" for frame in told)
        return told if is_whole else (*told, *_as_crash_frames(reading))
    return _as_crash_frames(reading)


def _as_crash_frames(reading: Reading) -> tuple[CrashFrame, ...]:
    """Python frames by another source than the tools: faulthandler's text. An exception's are in its traceback."""
    frames: tuple[Frame, ...] = () if reading.final else reading.python_frames or ()
    return tuple(CrashFrame("python", frame.function, frame.file, frame.line) for frame in frames)


def _place(frame: CrashFrame) -> tuple[object, ...]:
    """Without a name or a line only the address tells one place from another."""
    named = frame.function is not None or frame.line is not None
    return frame.kind, frame.function, frame.image, frame.file, frame.line, None if named else frame.address


def _group(frames: tuple[CrashFrame, ...]) -> Iterator[_Group]:
    for _, row in groupby(frames, key=_place):
        same = list(row)
        yield _Group(same[0], len(same))


def name_own_code(reading: Reading) -> str | None:
    """ "walk (list.cpp:3)": the component's line, of a program that nobody distributes and whose source is known."""
    frame = reading.blame.component_frame if reading.blame else None
    if frame is None or frame.function is None or frame.file is None:
        return None
    return f"{shorten_function(frame.function)} ({PurePath(frame.file).name}:{frame.line})"


def _call(group: _Group) -> Call:
    frame, symbol = group.frame, symbol_of(group.frame)
    return Call(
        kind=frame.kind,
        function=symbol if frame.kind == "python" or symbol is None else shorten_function(symbol),
        file=frame.file,
        line=frame.line,
        image=frame.image,
        offset=frame.offset,
        times=group.times,
    )
