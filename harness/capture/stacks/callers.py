"""The right name for a caller: the function that holds the call, not the one that begins where the call would return.

A call to a function that never returns (abort, __stack_chk_fail, a throw) may be the last instruction; its return
address is then the next function's first. pystack 1.7 names the function at the return address. Only frames that call
into a runtime library are looked up again, in the file's own symbol table, with the few before them in the same image
(Py_FatalError calls a function that calls abort); and those that no tool has named.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from itertools import pairwise
from pathlib import Path

from msgspec import structs

from harness.capture.files.formats.elf import Elf
from harness.capture.stacks.frames import clean_symbol
from harness.evidence.crash import CrashFrame, CrashThread

FRAME_TABLES = "frame tables"  # the source of frames that no tool has read: they come without names
_MOST_IN_A_ROW = 4  # of one image; a look into torch's symbols takes 50 ms
_NEVER_RETURN = ("libc.so", "libc-", "libstdc++", "libc++", "libgcc_s")


def name_callers(threads: tuple[CrashThread, ...]) -> tuple[CrashThread, ...]:
    return tuple(_name_thread(thread) if thread.crashed else thread for thread in threads)


def _name_thread(thread: CrashThread) -> CrashThread:
    if thread.source.startswith("gdb"):  # which looks one byte before, and knows what is inlined
        return thread
    frames = thread.frames if thread.source.startswith(FRAME_TABLES) else tuple(_name_frames(thread.frames))
    if FRAME_TABLES in thread.source:
        frames = tuple(_name_unnamed(frames))
    return structs.replace(thread, frames=frames)


def _name_unnamed(frames: tuple[CrashFrame, ...]) -> list[CrashFrame]:
    """The innermost is where the program was, the others are where calls return to."""
    return [
        structs.replace(frame, function=clean_symbol(demangle(name)))
        if frame.function is None
        and frame.image
        and frame.offset
        and (name := find_function(frame.image, int(frame.offset, 16) - (index > 0)))
        else frame
        for index, frame in enumerate(frames)
    ]


def _name_frames(frames: tuple[CrashFrame, ...]) -> list[CrashFrame]:
    named, in_a_row = list(frames[:1]), 0
    for inner, frame in pairwise(frames):
        if Path(inner.image or "").name.startswith(_NEVER_RETURN):
            in_a_row = 1
        else:
            in_a_row += 1 if in_a_row and frame.image == inner.image else -in_a_row
        looked_up = 0 < in_a_row <= _MOST_IN_A_ROW and frame.kind == "native"
        named.append(_name(frame) if looked_up else frame)
    return named


def _name(frame: CrashFrame) -> CrashFrame:
    if frame.image is None or frame.offset is None or Path(frame.image).name.startswith(_NEVER_RETURN):
        return frame
    name = find_function(frame.image, int(frame.offset, 16) - 1)
    return structs.replace(frame, function=clean_symbol(demangle(name))) if name else frame


@cache
def find_function(path: str, offset: int) -> str | None:
    try:
        with Elf(Path(path)) as elf:
            return elf.function_at(offset)
    except (OSError, ValueError, struct.error):
        return None


def demangle(name: str) -> str:
    """By the C++ runtime of this machine; as it is where there is none."""
    if not name.startswith("_Z"):
        return name
    try:
        runtime = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return name
    status = ctypes.c_int()
    runtime.__cxa_demangle.restype = ctypes.c_char_p
    text = runtime.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    return text.decode() if text else name
