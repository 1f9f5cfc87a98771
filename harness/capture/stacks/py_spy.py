"""Where a Python process was at each of several moments: its lines, and the integers in its frames. By py-spy, or by
our own reader where that cannot.

Nothing is stopped: what a running thread has changed meanwhile is read again. Says nothing of native frames, and sees
no variables of module level: py-spy reads neither.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter as Count
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from harness.capture.proc import is_running, list_tids, outer_tids
from harness.capture.stacks.cpython.own_reader import read_own
from harness.capture.stacks.cpython.thread_idents import find_tids
from harness.capture.stacks.ladder import ask_py_spy
from harness.capture.stacks.tearing import Value, is_sure_to_rise, leave_out_torn, read_runs
from harness.capture.stacks.tools import Said
from harness.evidence.crash import CrashFrame, ToolRun
from harness.evidence.living.look import Counter, HotSpot, make_counter
from harness.evidence.text.answers import decode_json

_MOST_FAILURES = 2
_TRIES = 4  # of one sample, while it runs
_LEAST_S = 0.5
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
    ident: int | None = msgspec.field(name="thread_id", default=None)

    @property
    def end(self) -> tuple[str, str]:
        """The function where its Python begins."""
        return (self.frames[-1].name, self.frames[-1].filename) if self.frames else ("", "")


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
    """The samples of one process. Gives up after two failures in a row that are not due to its running meanwhile."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.sightings: list[Sighting] = []
        self._seconds = 0.0
        self._failures = 0
        self._error: str | None = None
        self._tool = "py-spy"
        self._ends: dict[int | None, set[tuple[str, str]]] = {}

    @property
    def cost_s(self) -> float:
        """Of one sample, on our side."""
        return self._seconds / len(self.sightings) if self.sightings else 0.0

    @property
    def works(self) -> bool:
        return self._failures < _MOST_FAILURES

    def sample(self, at_s: float, deadline_s: float) -> Sighting | None:
        begun = time.monotonic()
        threads = self._ask_again(begun + deadline_s)
        self._seconds += time.monotonic() - begun
        if threads is None:
            return None
        self._failures = 0
        self.sightings.append(Sighting(at_s, threads))
        for thread in threads:
            self._ends.setdefault(thread.tid, set()).add(thread.end)
        if len(self.sightings) == 1 and any(thread.active for thread in threads):
            self.sample(at_s, deadline_s)  # one value alone does not show that it was there
        return self.sightings[-1]

    @property
    def is_unsure(self) -> bool:
        """Whether an integer of a running thread has risen in the last sample only: another one would show it."""
        if len(self.sightings) < ENOUGH:
            return True
        before, last = ({where: one for where, _, one in _list_integers(two)} for two in self.sightings[-2:])
        rose = (one.ran and one.value > before[where].value for where, one in last.items() if where in before)
        return any(rose) and not self.locals()[0]

    def _ask_again(self, end_s: float) -> tuple[Thread, ...] | None:
        """At once: what could not be read, or was cut off, because it changed under the tool's eyes."""
        runs: dict[int, str] | None = None
        stood, cut_off = False, None
        for _ in range(_TRIES):
            left_s = end_s - time.monotonic()
            if left_s <= 0 or stood:
                break
            threads = self._read(self._ask(left_s))
            if threads is not None and self._reaches_ends(threads):
                return threads
            before, runs = runs, read_runs(self.pid)
            stood, cut_off = threads is None and runs == before, threads or cut_off
        if cut_off is None and not self.sightings:
            return self._ask_own_reader(max(_LEAST_S, end_s - time.monotonic()))
        self._failures += int(stood)
        return cut_off

    def _reaches_ends(self, threads: Sequence[Thread]) -> bool:
        """Where a running thread's Python began before, unless it begins elsewhere again and again."""
        return all(not one.active or one.end in self._ends.get(one.tid, (one.end,)) for one in threads)

    def _ask_own_reader(self, deadline_s: float) -> tuple[Thread, ...] | None:
        """Of a build that py-spy cannot read (free-threaded)."""
        said, self._tool, error = self._tool, "own reader", self._error
        threads = self._read(self._ask(deadline_s))
        if threads is None:
            self._tool, self._error = said, error
            self._failures += 1
        return threads

    def _ask(self, deadline_s: float) -> Said:
        if self._tool == "py-spy":
            return ask_py_spy(self.pid, deadline_s, "--locals", "--nonblocking")
        return Said(*read_own(self.pid, deadline_s, outer_tids(self.pid), with_locals=True))

    def _read(self, said: Said) -> tuple[Thread, ...] | None:
        try:
            if said.error is not None:
                raise ValueError(said.error)
            return name_threads(self.pid, decode_json(said.output, tuple[Thread, ...]))
        except (OSError, ValueError) as error:
            self._error = str(error)
            return None

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

    def has_moved(self, tid: int) -> bool | None:
        """Whether what all samples share of its stack, from the outermost on, was not the same in all of them."""
        seen = [thread.frames[::-1] for one in self.sightings for thread in one.threads if thread.tid == tid]
        if len(seen) < 2 or not all(seen):
            return None
        shared = min(map(len, seen))
        return len({tuple(map(_place_and_objects, frames[:shared])) for frames in seen}) > 1

    def stands(self, tid: int) -> bool:
        """Whether it was on the same lines at each of the samples, the locals of the innermost the same objects."""
        seen = [thread for one in self.sightings for thread in one.threads if thread.tid == tid and thread.frames]
        return (
            len(seen) == len(self.sightings) > 1 and len({(_lines(one), _objects(one.frames[0])) for one in seen}) == 1
        )

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
        """Integers that only rose, and those that moved otherwise; each seen in at least three samples, to the last in
        which its place could be read: that of a running thread may hold another object for a moment."""
        values: dict[_Where, list[Value]] = {}
        frames: dict[_Where, CrashFrame] = {}
        for sighting in self.sightings:
            for where, frame, value in _list_integers(sighting):
                values.setdefault(where, []).append(value)
                frames[where] = frame
        moved = [
            (
                is_sure_to_rise(seen),
                make_counter("local", _describe(where, frames[where]), _pairs(seen), frames[where], where.tid),
            )
            for where, read in values.items()
            if len(read) >= ENOUGH and len({one.value for one in read}) > 1 and self._is_still_there(where, read[-1])
            for seen in [leave_out_torn(read)]
        ]
        rising = [one for rises, one in moved if rises]
        return rising[:_MOST_SHOWN], [one for rises, one in moved if not rises][:_MOST_SHOWN]

    def find_object(self, counter: Counter, name: str) -> int | None:
        """The address of another local of the counter's frame, if the last two samples found the same one there."""
        seen = {_find_address(sighting, counter, name) for sighting in self.sightings[-2:]}
        return seen.pop() if len(seen) == 1 else None

    def _is_still_there(self, where: _Where, last: Value) -> bool:
        """Seen in the last sample, or in the one before if its thread then ran, in the same function."""
        if last.at_s == self.sightings[-1].at_s:
            return True
        thread = self.last().get(where.tid)
        if thread is None or not thread.active or last.at_s != self.sightings[-2].at_s:
            return False
        frame = thread.frames[-where.depth] if where.depth <= len(thread.frames) else None
        return frame is not None and (frame.name, frame.filename) == (where.function, where.file)


def _find_address(sighting: Sighting, counter: Counter, name: str) -> int | None:
    """Null also where the frame is there more than once, as in a recursion."""
    place = counter.frame
    frames = [
        frame
        for thread in sighting.threads
        for frame in thread.frames
        if thread.tid == counter.tid
        and place
        and (frame.place.function, frame.filename) == (place.function, place.file)
    ]
    found = [one.address for frame in frames for one in frame.locals or () if one.name == name]
    return found[0] if len(frames) == 1 and len(found) == 1 else None


def _integers(thread: Thread) -> tuple[tuple[str, str], ...]:
    found = ((one.name, one.repr or "") for frame in thread.frames for one in frame.locals or ())
    return tuple(pair for pair in found if _INTEGER.fullmatch(pair[1]))


def _lines(thread: Thread) -> tuple[tuple[str, int], ...]:
    return tuple((frame.filename, frame.line) for frame in thread.frames)


def _objects(frame: Frame) -> tuple[tuple[str, int], ...]:
    return tuple((one.name, one.address) for one in frame.locals or ())


def _place_and_objects(frame: Frame) -> tuple[object, ...]:
    return frame.filename, frame.name, frame.line, _objects(frame)


def name_threads(pid: int, threads: Sequence[Thread]) -> tuple[Thread, ...]:
    """With thread ids as we see them. Before 3.11 py-spy tells only Python's ident, and guesses who runs."""
    outer = outer_tids(pid)
    tids = _find_unnamed(pid, [thread.ident for thread in threads if thread.tid is None], len(threads), outer)
    named = []
    for thread in threads:
        inner = thread.tid or tids.get(thread.ident or 0)
        tid = outer.get(inner, inner) if inner else None
        active = thread.active and (thread.tid is not None or tid is None or is_running(pid, tid))
        named.append(msgspec.structs.replace(thread, tid=tid, active=active))
    return tuple(named)


def _find_unnamed(pid: int, idents: Sequence[int | None], count: int, outer: Mapping[int, int]) -> dict[int, int]:
    """By ident the thread ids that py-spy did not tell. `count`: of all threads; the only one is the main one."""
    known = [ident for ident in idents if ident]
    tids = find_tids(pid, known, {*list_tids(pid), *outer}) if known else {}
    return tids or ({known[0]: pid} if known and count == 1 else {})


def fill_tids(pid: int, output: bytes) -> bytes:
    """What `py-spy dump --json` printed, with the thread ids that it did not tell. Unreadable."""
    threads = decode_json(output, list[Thread])
    unnamed = [thread.ident for thread in threads if thread.tid is None]
    if not any(unnamed):
        return output
    tids = _find_unnamed(pid, unnamed, len(threads), outer_tids(pid))
    plain = decode_json(output, list[dict[str, Any]])
    told = [{**one, "os_thread_id": of.tid or tids.get(of.ident or 0)} for one, of in zip(plain, threads, strict=True)]
    return json.dumps(told).encode()


def _pairs(seen: Sequence[Value]) -> list[tuple[float, int]]:
    return [(one.at_s, one.value) for one in seen]


def _list_integers(sighting: Sighting) -> Iterator[tuple[_Where, CrashFrame, Value]]:
    for thread in sighting.threads:
        for index, frame in enumerate(thread.frames if thread.tid else ()):
            for one in frame.locals or ():
                value = _read_integer(one.repr)
                if value is not None and thread.tid:
                    depth = len(thread.frames) - index
                    where = _Where(thread.tid, depth, frame.name, frame.filename, one.name)
                    yield where, frame.place, Value(sighting.at_s, value, thread.active)


def _read_integer(words: str | None) -> int | None:
    """Null: no integer, or one that is an address or the time of day, which rise for other reasons."""
    if words is None or not _INTEGER.fullmatch(words):
        return None
    value = int(words)
    return None if abs(value) > _LARGEST or abs(value - time.time()) < _DAY_S else value


def _describe(where: _Where, frame: CrashFrame) -> str:
    return f"{where.name} in {frame.function} ({Path(where.file).name}:{frame.line})"
