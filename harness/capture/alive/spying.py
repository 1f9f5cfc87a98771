"""Where a Python process was at each of several moments: its lines, and the integers in its frames. By py-spy, or by
our own reader where that cannot.

Each sample stops the process for some milliseconds, which are measured, or not at all (`blocking=False`). Says nothing
of native frames, and sees no variables of module level: py-spy reads neither.
"""

from __future__ import annotations

import re
import time
from collections import Counter as Count
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from harness.capture.alive.counting import make_counter
from harness.capture.alive.stopwatch import Stopwatch
from harness.capture.own_stacks import read_own
from harness.capture.stacks import Said, find_py_spy, is_stopping, let_go, outer_tids, run_tool
from harness.evidence.alive import Counter, HotSpot
from harness.evidence.crash import CrashFrame, ToolRun

_MOST_FAILURES = 2
ENOUGH = 3  # samples to tell what only rises
_MOST_SHOWN = 12
_INTEGER = re.compile(r"-?\d{1,13}")
_LARGEST = 1 << 40  # what is more is an address, a hash or a time in nanoseconds
_DAY_S = 86_400


class Local(Struct, frozen=True):
    """`address`: of the object; `repr`: py-spy's own, shortened."""

    name: str
    address: int = msgspec.field(name="addr")
    repr: str | None = None


class Frame(Struct, frozen=True):
    name: str
    filename: str
    line: int
    locals: tuple[Local, ...] | None = None

    @property
    def place(self) -> CrashFrame:
        # py-spy gives the qualified name where it can; the other tools do not.
        return CrashFrame("python", self.name.rpartition(".")[2], self.filename, self.line)


class Thread(Struct, frozen=True):
    """Innermost frame first. `active`: on CPU, as far as can be told."""

    frames: tuple[Frame, ...]
    active: bool
    owns_gil: bool
    tid: int | None = msgspec.field(name="os_thread_id", default=None)
    name: str | None = msgspec.field(name="thread_name", default=None)


class Sighting(NamedTuple):
    at_s: float
    threads: tuple[Thread, ...]


class _Where(NamedTuple):
    """A local of one frame: the same depth, counted from the outermost, function and file is taken for the same."""

    tid: int
    depth: int
    function: str
    file: str
    name: str


class Spy:
    """The samples of one process. Gives up after two failures in a row."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.sightings: list[Sighting] = []
        self.stopped_ms = 0.0
        self.longest_ms = 0.0
        self._seconds = 0.0
        self._failures = 0
        self._error: str | None = None
        self._tool = "py-spy"

    @property
    def cost_s(self) -> float:
        """Of one sample, on our side."""
        return self._seconds / len(self.sightings) if self.sightings else 0.0

    @property
    def works(self) -> bool:
        return self._failures < _MOST_FAILURES

    def sample(self, at_s: float, deadline_s: float, *, blocking: bool) -> Sighting | None:
        begun = time.monotonic()
        said = self._ask(blocking, deadline_s)
        self._seconds += time.monotonic() - begun
        try:
            if said.error is not None:
                raise ValueError(said.error)
            sighting = Sighting(at_s, self._read(said.output))
        except ValueError as error:  # msgspec's are of this kind too
            self._failures += 1
            self._error = str(error)
            return None
        self._failures = 0
        self.sightings.append(sighting)
        return sighting

    def _read(self, output: bytes) -> tuple[Thread, ...]:
        threads, outer = msgspec.json.decode(output, type=tuple[Thread, ...]), outer_tids(self.pid)
        return tuple(
            msgspec.structs.replace(thread, tid=outer[thread.tid]) if thread.tid in outer else thread
            for thread in threads
        )

    def _ask(self, blocking: bool, deadline_s: float) -> Said:
        """By py-spy; of a build that it cannot read (free-threaded) by our own reader, which never stops anything."""
        if self._tool == "py-spy":
            said = self._ask_py_spy(blocking, deadline_s)
            if said.error is None or self.sightings:
                return said
        own = Said(*read_own(self.pid, deadline_s, outer_tids(self.pid), with_locals=True))
        if self._tool == "py-spy" and own.error is not None:
            return said
        self._tool = "own reader"
        return own

    def _ask_py_spy(self, blocking: bool, deadline_s: float) -> Said:
        command = [find_py_spy(), "dump", "--json", "--locals", "--pid", str(self.pid)]
        if not blocking:
            return run_tool([*command, "--nonblocking"], deadline_s)
        was_stopped = is_stopping(self.pid)
        with Stopwatch(self.pid) as watch:
            said = run_tool(command, deadline_s)
        self.stopped_ms += watch.stopped_ms
        self.longest_ms = max(self.longest_ms, watch.stopped_ms)
        if not was_stopped and (said.error is not None or is_stopping(self.pid)):
            let_go(self.pid)
        return said

    @property
    def run(self) -> ToolRun | None:
        """All its samples as one; null when it was never asked."""
        if not self.sightings and not self._error:
            return None
        error = None if self.works and self.sightings else self._error
        return ToolRun(f"{self._tool} locals", round(self._seconds, 4), error)

    def last(self) -> dict[int, Thread]:
        return {thread.tid: thread for thread in self.sightings[-1].threads if thread.tid} if self.sightings else {}

    def has_changed(self, tid: int) -> bool:
        """Whether the thread was on another line at any of the samples, or an integer of its frames was another."""
        seen = [thread for one in self.sightings for thread in one.threads if thread.tid == tid]
        return len(set(map(_lines, seen))) > 1 or len(set(map(_integers, seen))) > 1

    def hot_spots(self) -> Iterator[HotSpot]:
        """Most seen first."""
        seen: Count[tuple[int, CrashFrame]] = Count()
        for sighting in self.sightings:
            for thread in sighting.threads:
                if thread.active and thread.frames and thread.tid:
                    seen[thread.tid, thread.frames[0].place] += 1
        for (tid, frame), times in seen.most_common(_MOST_SHOWN):
            yield HotSpot(frame, times, len(self.sightings), tid)

    def locals(self) -> tuple[list[Counter], list[Counter]]:
        """Integers that only rose, and those that moved otherwise; each seen in at least three samples, to the last."""
        values: dict[_Where, list[tuple[float, int]]] = {}
        frames: dict[_Where, CrashFrame] = {}
        for sighting in self.sightings:
            for where, frame, value in _list_integers(sighting):
                values.setdefault(where, []).append((sighting.at_s, value))
                frames[where] = frame
        last_s = self.sightings[-1].at_s if self.sightings else 0.0
        moved = [
            make_counter("local", _describe(where, frames[where]), seen, frames[where], where.tid)
            for where, seen in values.items()
            if len(seen) >= ENOUGH and seen[-1][0] == last_s and len({value for _, value in seen}) > 1
        ]
        rising = [one for one in moved if one.rises]
        return rising[:_MOST_SHOWN], [one for one in moved if not one.rises][:_MOST_SHOWN]


def _integers(thread: Thread) -> tuple[tuple[str, str], ...]:
    found = ((one.name, one.repr or "") for frame in thread.frames for one in frame.locals or ())
    return tuple(pair for pair in found if _INTEGER.fullmatch(pair[1]))


def _lines(thread: Thread) -> tuple[tuple[str, int], ...]:
    return tuple((frame.filename, frame.line) for frame in thread.frames)


def _list_integers(sighting: Sighting) -> Iterator[tuple[_Where, CrashFrame, int]]:
    for thread in sighting.threads:
        for index, frame in enumerate(thread.frames if thread.tid else ()):
            for one in frame.locals or ():
                value = _read_integer(one.repr)
                if value is not None and thread.tid:
                    depth = len(thread.frames) - index
                    yield _Where(thread.tid, depth, frame.name, frame.filename, one.name), frame.place, value


def _read_integer(words: str | None) -> int | None:
    """Null: no integer, or one that is an address or the time of day, which rise for other reasons."""
    if words is None or not _INTEGER.fullmatch(words):
        return None
    value = int(words)
    return None if abs(value) > _LARGEST or abs(value - time.time()) < _DAY_S else value


def _describe(where: _Where, frame: CrashFrame) -> str:
    return f"{where.name} in {frame.function} ({Path(where.file).name}:{frame.line})"
