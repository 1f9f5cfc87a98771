"""What moves in a process, as /proc counts it: bytes read and written, files that grow, children that finish, beats;
and which of its threads moved it.

One small sample at a time, some hundred microseconds plus about twenty for each thread; stops nothing. What harness
itself writes never counts. Whether something that rose is progress is decided in `diagnose`.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import Counter as Count
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from harness.capture.living.counters.beats import read_pulse
from harness.capture.living.counters.offspring import Offspring
from harness.capture.living.counters.thread_io import Bytes, ThreadBytes
from harness.capture.proc import Stat, list_tids, read_stat
from harness.evidence.case import default_cases_dir
from harness.evidence.living.look import BY_ENDED, FAILED, UNSEEN, Counter, ThreadState, make_counter

_MOST_DESCRIPTORS = 512
_MOST_FILES = 32
_NOT_FILES = ("/memfd:", "/dev/shm/", "/proc/", "/sys/")


class Growing(NamedTuple):
    """A regular file that is open for writing."""

    size: int
    position: int


class Sample(NamedTuple):
    """`io`: of each thread, and under null of those that had ended by then; null where it is not ours to see.

    `runs`: of threads in uninterruptible sleep, how often each ever got the CPU.
    """

    at_s: float
    stat: Stat
    threads: dict[int, Stat]
    io: dict[int | None, Bytes] | None
    files: dict[str, Growing]
    finished: int
    failed: int
    unseen: int
    step: int | None
    runs: dict[int, int]


class Tally:
    """The samples of one process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.samples: list[Sample] = []
        self._stops: set[float] = set()
        self._io = ThreadBytes(pid)
        self._offspring = Offspring()
        self._own = str(default_cases_dir())

    def close(self) -> None:
        self._offspring.close()

    def take(self, at_s: float, children: dict[int, ThreadState]) -> Sample:
        """OSError: the process has gone. `children`: by pid, as they are now."""
        about, threads = read_stat(self.pid), dict(_read_threads(self.pid))
        self._offspring.count(about.children_faults, children)
        sample = Sample(
            at_s=at_s,
            stat=about,
            threads=threads,
            io=self._io.read(),
            files=dict(_list_growing(self.pid, self._own)),
            finished=self._offspring.well,
            failed=self._offspring.failed,
            unseen=self._offspring.unseen,
            step=read_pulse(self.pid),
            runs=dict(_read_runs(self.pid, threads)),
        )
        self.samples.append(sample)
        return sample

    def discount(self) -> None:
        """We have stopped it since the last sample: what rises until the next one is no movement of its own (write(2)
        that comes back early, man 7 signal)."""
        if self.samples:
            self._stops.add(round(self.samples[-1].at_s, 3))

    def cpu_s(self, tid: int) -> float:
        """Used by a thread since it was first seen."""
        seen = [sample.threads[tid].cpu_s for sample in self.samples if tid in sample.threads]
        return round(seen[-1] - seen[0], 3) if seen else 0.0

    def runs(self, tid: int) -> int | None:
        """How often it got the CPU between the first and the last sample that found it in uninterruptible sleep."""
        seen = [sample.runs[tid] for sample in self.samples if tid in sample.runs]
        return seen[-1] - seen[0] if len(seen) > 1 else None

    @property
    def fleeting_threads(self) -> int:
        """How many were not there at each sample."""
        seen = Count(tid for sample in self.samples for tid in sample.threads)
        return sum(times < len(self.samples) for times in seen.values())

    @property
    def major_faults(self) -> int:
        return self.samples[-1].stat.major_faults - self.samples[0].stat.major_faults if self.samples else 0

    @property
    def kernel_s(self) -> float:
        """CPU time that all threads have spent in the kernel."""
        return round(self.samples[-1].stat.kernel_s - self.samples[0].stat.kernel_s, 3) if self.samples else 0.0

    def counters(self) -> Iterator[Counter]:
        for counter in (*self._bytes(), *self._files()):
            yield discount(counter, self._stops)
        if self._offspring.seen:
            yield make_counter("child", "children finished", [(one.at_s, one.finished) for one in self.samples])
        if self._offspring.failed:
            yield make_counter("ended", FAILED, [(one.at_s, one.failed) for one in self.samples])
        if self._offspring.unseen:
            yield make_counter("ended", UNSEEN, [(one.at_s, one.unseen) for one in self.samples])
        steps = [(one.at_s, one.step) for one in self.samples if one.step is not None]
        if steps:
            yield make_counter("beat", "harness.beat", steps)

    def _bytes(self) -> Iterator[Counter]:
        """Of each thread that moved some; of the process where none did."""
        seen = [(one.at_s, one.io) for one in self.samples if one.io is not None]
        tids = list(dict.fromkeys(tid for _, io in seen for tid in io))
        for at, name in enumerate(Bytes._fields) if seen else ():
            each = {tid: [(at_s, io[tid][at] if tid in io else 0) for at_s, io in seen] for tid in tids}
            moved = {tid: values for tid, values in each.items() if len({value for _, value in values}) > 1}
            for tid, values in moved.items():
                yield make_counter("io", f"bytes {name}{BY_ENDED if tid is None else ''}", values, tid=tid)
            if not moved:
                total = [(at_s, sum(one[at] for one in io.values())) for at_s, io in seen]
                yield make_counter("io", f"bytes {name}", total)

    def _files(self) -> Iterator[Counter]:
        """A file grows for the threads that wrote meanwhile; of those that have ended, only the bytes are told. One
        that several processes write (a log, inherited) grows for the process that wrote anything at all."""
        wrote = [self._writers(*pair) for pair in zip(self.samples, self.samples[1:], strict=False)]
        blind = any(sample.io is None for sample in self.samples)
        for path in dict.fromkeys(path for sample in self.samples for path in sample.files):
            there = [index for index, sample in enumerate(self.samples) if path in sample.files]
            seen = [(self.samples[index].at_s, self.samples[index].files[path]) for index in there]
            by_position = len({one.size for _, one in seen}) == 1 and len({one.position for _, one in seen}) > 1
            values = [(at_s, one.position if by_position else one.size) for at_s, one in seen]
            if blind or len({value for _, value in values}) == 1:
                yield make_counter("file", path, values)
            elif any(wrote):
                steps = zip(there, values, values[1:], strict=False)
                writers = {tid for index, (_, less), (_, more) in steps if more > less for tid in wrote[index]}
                for tid in [None] if not writers else sorted(writers - {None}, key=str):
                    yield make_counter("file", path, values, tid=tid)

    def _writers(self, before: Sample, after: Sample) -> set[int | None]:
        had, has = before.io or {}, after.io or {}
        return {tid for tid, one in has.items() if one.written > (had[tid].written if tid in had else 0)}


def discount(counter: Counter, stops: Container[float]) -> Counter:
    """Without what it rose by between the sample at one of these times and the next one."""
    off, values = 0, []
    for index, value in enumerate(counter.values):
        if index and counter.times_s[index - 1] in stops:
            off += max(0, value - counter.values[index - 1])
        values.append(value - off)
    return replace(counter, values=tuple(values))


def _read_threads(pid: int) -> Iterator[tuple[int, Stat]]:
    for tid in list_tids(pid):
        with contextlib.suppress(OSError):  # it has ended
            yield tid, read_stat(pid, tid)


def _read_runs(pid: int, threads: dict[int, Stat]) -> Iterator[tuple[int, int]]:
    """The CPU time of a stat has ticks of 10 ms: for less a disk that answers wakes a thread."""
    for tid, about in threads.items():
        if about.state == "D":
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended, or this kernel does not count
                yield tid, int(Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()[2])


def _list_growing(pid: int, own: str) -> Iterator[tuple[str, Growing]]:
    folder = f"/proc/{pid}/fd"
    try:
        numbers = sorted(map(int, os.listdir(folder)))[:_MOST_DESCRIPTORS]  # noqa: PTH208 (only names are wanted)
    except OSError:
        return
    found = 0
    for number in numbers:
        with contextlib.suppress(OSError):  # closed meanwhile
            path = os.readlink(f"{folder}/{number}")  # noqa: PTH115 (five times faster)
            if path.startswith("/") and not path.startswith((own, *_NOT_FILES)) and _is_regular(f"{folder}/{number}"):
                position, flags = _read_fdinfo(f"/proc/{pid}/fdinfo/{number}")
                if flags & os.O_ACCMODE != os.O_RDONLY:
                    yield path, Growing(os.stat(f"{folder}/{number}").st_size, position)  # noqa: PTH116
                    found += 1
        if found == _MOST_FILES:
            return


def _is_regular(link: str) -> bool:
    return stat.S_ISREG(os.stat(link).st_mode)  # noqa: PTH116 (as above)


def _read_fdinfo(path: str) -> tuple[int, int]:
    words = Path(path).read_text().split()
    return int(words[1]), int(words[3], 8)
