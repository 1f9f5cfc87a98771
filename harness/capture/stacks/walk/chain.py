"""How far the frames of a crashed thread hang together: what the images' own frame tables say, beside what a tool says.

An unwinder that starts in the wrong place, or is led astray by a damaged stack, goes on with whatever lies there: such
frames are marked, and none is left out. Where no tool could read the stack, the frames that we followed stand for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec import structs

from harness.capture.files.images import Row
from harness.capture.stacks.callers import FRAME_TABLES
from harness.capture.stacks.frames import NativeFrame, Places, is_trampoline, place_native
from harness.capture.stacks.walk.calls import follows_call
from harness.capture.stacks.walk.unwind import Memory, Walk, list_code, walk_stack
from harness.evidence.crash import CrashFrame, CrashThread, Image, Step, ToolRun
from harness.evidence.gap import Gap

# More frames than any program has that does not recurse; 0.1 s. What is kept shows a recursion many times.
_DEEP, _KEPT = 1000, 200


class OwnFrames:
    """Of the crashed thread, followed while it stands still; without registers there are none."""

    def __init__(
        self,
        tid: int | None,
        registers: dict[str, int],
        rows: list[Row],
        images: tuple[Image, ...],
        read: Callable[[int, int], bytes],
        machine: str = os.uname().machine,
    ) -> None:
        self._tid = tid
        self._memory = Memory(read, Places(images, read), list_code(rows))
        self._walk = walk_stack(registers, self._memory, machine, _DEEP)
        self.deep = self._walk.deep

    def join(
        self, step: Step, threads: tuple[CrashThread, ...], tools: tuple[ToolRun, ...]
    ) -> tuple[Step, tuple[CrashThread, ...], tuple[ToolRun, ...]]:
        """What the tools say of the crashed thread, checked; or ours, before the Python frames that they found."""
        if self._tid is None or not self._walk.addresses:
            return step, threads, tools
        told = next((thread for thread in threads if thread.tid == self._tid), None)
        if told is None:
            told = CrashThread(self._tid, None, True, (), FRAME_TABLES)
            threads = (told, *threads)
        if any(frame.kind == "native" for frame in told.frames):
            marked = mark_guessed(told.frames, self._walk, self._memory)
            frames = self._begin(self._go_on(marked))
            source = told.source if frames is marked else f"{told.source}, {FRAME_TABLES}"
        elif len(self._walk.addresses) > 1 or self.deep:
            frames = (*self._place(), *told.frames)
            source = f"{FRAME_TABLES}, {told.source}" if told.frames else FRAME_TABLES
        else:
            return step, tuple(thread for thread in threads if thread.frames), tools
        joined = structs.replace(told, frames=frames, source=source)
        return "native" if self.deep else step, tuple(joined if thread is told else thread for thread in threads), tools

    def _begin(self, frames: tuple[CrashFrame, ...]) -> tuple[CrashFrame, ...]:
        """py-spy gives names and no addresses; where a signal hit a function's first byte, its neighbour's name."""
        first, here = frames[0], place_walk(self._walk, self._memory)[0]
        if first.kind == "python" or first.address is not None or first.image != here.image:
            return frames
        return (here, *frames[1:])

    def _go_on(self, marked: tuple[CrashFrame, ...]) -> tuple[CrashFrame, ...]:
        """Where a tool had to guess and the frame tables lead further, what they lead to stands for its guesses."""
        lost = next((index for index, frame in enumerate(marked) if frame.guessed), len(marked))
        seen = {frame.address for frame in marked[:lost]}
        own = self._place()
        known = max((index for index, frame in enumerate(own) if frame.address in seen), default=len(own))
        further = own[known + 1 :]
        if lost == len(marked) or not further:
            return marked
        return (*marked[:lost], *further, *(frame for frame in marked[lost:] if frame.kind == "python"))

    def _place(self) -> tuple[CrashFrame, ...]:
        frames = place_walk(self._walk, self._memory)
        if not self.deep:
            return frames
        return (*frames[: _KEPT - 1], structs.replace(frames[_KEPT - 1], omitted=len(frames) - _KEPT))

    def gaps(self, threads: tuple[CrashThread, ...]) -> list[Gap]:
        told = next((thread for thread in threads if thread.tid == self._tid), None)
        frames = told.frames if told else ()
        if self.deep:
            why = f"it has more than {_DEEP:,} native frames; the innermost {_KEPT} are kept"
            return [Gap("the whole stack", why)]
        if any(frame.guessed for frame in frames):
            why = "what lies on the stack there is no place that a call returns to: the stack is damaged or was left"
            return [Gap("who called the innermost native frames", why)]
        return []


def place_walk(walk: Walk, memory: Memory) -> tuple[CrashFrame, ...]:
    """Frames without names: those are in files, which can be read when the process is gone."""
    return tuple(place_native(NativeFrame(address, "", "", 0, ""), memory.places) for address in walk.addresses)


def mark_guessed(frames: tuple[CrashFrame, ...], walk: Walk, memory: Memory) -> tuple[CrashFrame, ...]:
    """Innermost first. From the first native frame on that no call can return to, all native frames are guessed.

    Not before the last one that the frame tables lead to: gdb tells functions that have left by a jump as well.
    """
    certain = {hex(address) for address in walk.addresses}
    first = max((index for index, frame in enumerate(frames) if frame.address in certain), default=-1) + 1
    lost = next((index for index in range(first, len(frames)) if _is_lost(frames, index, walk, memory)), len(frames))
    return tuple(
        structs.replace(frame, guessed=True) if index >= lost and frame.kind == "native" else frame
        for index, frame in enumerate(frames)
    )


def _is_lost(frames: tuple[CrashFrame, ...], index: int, walk: Walk, memory: Memory) -> bool:
    """Where the program was, and where a signal hit it, nothing returns to; an inlined frame is part of the next."""
    frame = frames[index]
    if frame.kind != "native" or frame.address is None:
        return False
    inner = next((inner for inner in reversed(frames[:index]) if inner.kind == "native"), None)
    if inner is None or is_trampoline(inner) or inner.address == frame.address:
        return False
    return walk.broken or not (is_trampoline(frame) or _can_return(int(frame.address, 16), memory))


def _can_return(address: int, memory: Memory) -> bool:
    """True as well where the code cannot be read: then nothing speaks against it."""
    return memory.is_code(address) and follows_call(memory.read, address) is not False
