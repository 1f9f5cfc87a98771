"""A short name for the place of a crash: equal for the same fault, whatever the addresses, lines and directories.

Normalised as satyr does it (abrt's library). Groups cases; proves nothing.
"""

from __future__ import annotations

import hashlib
from pathlib import PurePath

from harness.diagnose.plumbing import (
    image_name,
    is_exit,
    is_interpreter,
    is_malloc_internal,
    is_ours,
    is_plumbing,
    plain_function,
)
from harness.evidence.crash import CrashFrame

_FRAMES = 16
_LONGEST_CYCLE = 6


def sign_stack(signame: str, frames: tuple[CrashFrame, ...]) -> str | None:
    stack = normalise_stack(frames)
    if not stack:
        return None
    return hashlib.sha256("\n".join([signame, *stack]).encode()).hexdigest()[:12]


def normalise_stack(frames: tuple[CrashFrame, ...]) -> tuple[str, ...]:
    """The names of the frames that make the place, innermost first."""
    kept = [frame for frame in _below_machinery(_without_inlined(frames)) if not is_ours(frame)]
    named = [frame for frame in _without_interpreter(kept) if plain_function(frame) or not is_plumbing(frame)]
    return tuple(_merge_recursion([_token(frame) for frame in named])[:_FRAMES])


def _without_inlined(frames: tuple[CrashFrame, ...]) -> tuple[CrashFrame, ...]:
    """An inlined frame has the address of the one it is part of, and is only seen with debug information."""
    return tuple(
        frame
        for index, frame in enumerate(frames)
        if frame.address is None or frame.address not in {outer.address for outer in frames[index + 1 : index + 2]}
    )


def _below_machinery(frames: tuple[CrashFrame, ...]) -> tuple[CrashFrame, ...]:
    """From the frame by which it ended itself, or below the allocator's internals, if it was there that it ended."""
    start = 0
    for index, frame in enumerate(frames):
        if not is_plumbing(frame):
            break
        if is_malloc_internal(frame):
            start = index + 1
        elif is_exit(frame):
            start = index
    return frames[start:]


def _without_interpreter(frames: list[CrashFrame]) -> list[CrashFrame]:
    """Below the innermost Python frame the interpreter's own frames differ from one Python version to the next."""
    first = next((index for index, frame in enumerate(frames) if frame.kind == "python"), len(frames))
    return frames[:first] + [frame for frame in frames[first:] if not is_interpreter(frame.image)]


def _token(frame: CrashFrame) -> str:
    if frame.kind == "python":
        return f"{PurePath(frame.file or '').name}:{frame.function}"
    function = plain_function(frame)
    if function is not None:
        return function
    return f"{image_name(frame.image) or '?'}+{frame.offset or '?'}"


def _merge_recursion(stack: list[str]) -> list[str]:
    """`f g f g f g h` becomes `f g h`: how deep it was is not where it was."""
    merged: list[str] = []
    for token in stack:
        merged.append(token)
        for length in range(1, _LONGEST_CYCLE + 1):
            if len(merged) >= 2 * length and merged[-length:] == merged[-2 * length : -length]:
                del merged[-length:]
                break
    return merged
