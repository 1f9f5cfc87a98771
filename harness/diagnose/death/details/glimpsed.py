"""Where Python was when memory came near its limit, or when another rank failed: nothing else tells of it. Pure.

Seen at that time, not at the death: it is told with how long before, and never as the place of the death itself.
"""

from __future__ import annotations

from typing import NamedTuple

from harness.diagnose.death.reading import Reading
from harness.diagnose.frames import innermost_user_frame
from harness.documents.verdict import Frame, Ground
from harness.evidence.glimpse import Glimpse, GlimpseThread

_SOURCE = "py-spy, without stopping it"


class Glimpsed(NamedTuple):
    """`before_s`: the end."""

    frame: Frame
    before_s: float
    why: str

    @property
    def words(self) -> str:
        return f"; {self.before_s:.1f} s before, Python was in {self.frame.place}"

    @property
    def ground(self) -> Ground:
        fact = f"{self.before_s:.1f} s before the end, when {self.why}, Python was in {self.frame.place}"
        return Ground(fact, _SOURCE)


def find_glimpsed(reading: Reading) -> Glimpsed | None:
    """The last look at the culprit near a limit of memory that showed a line of the user's."""
    ended_s = reading.culprit.ended_s
    own = [one for one in reading.evidence.glimpses if one.pid == reading.culprit.pid and one.event == "memory"]
    if ended_s is None:
        return None
    for glimpse in sorted(own, key=lambda one: one.at_s, reverse=True):
        if frame := _find_frame(glimpse):
            return Glimpsed(frame, max(0.0, ended_s - glimpse.at_s), glimpse.why)
    return None


def tell_other_ranks(reading: Reading) -> tuple[Ground, ...]:
    """Where the ranks were that did not come, when the first one gave up; and which had ended before."""
    grounds = []
    for glimpse in reading.evidence.glimpses:
        frame = _find_frame(glimpse) if glimpse.event == "failure" else None
        if frame is not None:
            grounds.append(Ground(f"when {glimpse.why}, rank {glimpse.rank} was in {frame.place}", _SOURCE))
    for process in reading.failures.ranks():
        ended_well = process.ending is not None and process.ending.exit_code == 0
        if ended_well and (process.ended_s or 0.0) <= (reading.culprit.ended_s or 0.0):
            grounds.append(Ground(f"rank {process.rank} had ended before, with exit status 0", process.source))
    return tuple(grounds)


def _find_frame(glimpse: Glimpse) -> Frame | None:
    """Of the thread that held the interpreter; else of the main thread; else of any."""
    for thread in sorted(glimpse.threads, key=lambda one: (not one.owns_gil, not _is_main(one, glimpse))):
        frames = tuple(
            Frame(one.file, one.line, one.function or "")
            for one in thread.frames
            if one.file is not None and one.line is not None
        )
        if found := innermost_user_frame(frames):
            return found
    return None


def _is_main(thread: GlimpseThread, glimpse: Glimpse) -> bool:
    return thread.tid == glimpse.pid or thread.name == "MainThread"
