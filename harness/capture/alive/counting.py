"""What moves in a process, as /proc counts it: bytes read and written, files that grow, children that finish, beats.

One small sample at a time, some hundred microseconds plus about twenty for each thread; stops nothing. What harness
itself writes never counts. Whether something that rose is progress is decided in `diagnose`.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from harness.capture.alive.living import Stat, list_tids, read_stat
from harness.capture.alive.pulses import read_pulse
from harness.evidence.alive import Counter, ThreadState
from harness.evidence.case import default_cases_dir
from harness.evidence.crash import CrashFrame

_MOST_DESCRIPTORS = 512
_MOST_FILES = 32
Kind = Literal["io", "file", "buffer", "child", "local", "beat", "device"]
_NOT_FILES = ("/memfd:", "/dev/shm/", "/proc/", "/sys/")


class Growing(NamedTuple):
    """A regular file that is open for writing."""

    size: int
    position: int


class Sample(NamedTuple):
    at_s: float
    stat: Stat
    threads: dict[int, Stat]
    io: tuple[int, int] | None
    files: dict[str, Growing]
    finished: int
    step: int | None


class Tally:
    """The samples of one process. `children`: those seen so far that have not finished."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.samples: list[Sample] = []
        self.children: set[int] = set()
        self._finished = 0
        self._own = str(default_cases_dir())

    def take(self, at_s: float, children: dict[int, ThreadState]) -> Sample:
        """OSError: the process has gone. `children`: by pid, as they are now."""
        about = read_stat(self.pid)
        self._count_finished(about, children)
        sample = Sample(
            at_s=at_s,
            stat=about,
            threads=dict(_read_threads(self.pid)),
            io=_read_io(self.pid),
            files=dict(_list_growing(self.pid, self._own)),
            finished=self._finished,
            step=read_pulse(self.pid),
        )
        self.samples.append(sample)
        return sample

    def _count_finished(self, about: Stat, children: dict[int, ThreadState]) -> None:
        """Those that came and went between two samples left their page faults with their parent (cminflt)."""
        living = {pid for pid, state in children.items() if state not in "ZX"}
        finished = len(self.children - living)
        unseen = bool(self.samples) and about.children_faults > self.samples[-1].stat.children_faults
        self._finished += finished or int(unseen)
        self.children = living

    def cpu_s(self, tid: int) -> float:
        """Used by a thread since it was first seen."""
        seen = [sample.threads[tid].cpu_s for sample in self.samples if tid in sample.threads]
        return round(seen[-1] - seen[0], 3) if seen else 0.0

    @property
    def major_faults(self) -> int:
        return self.samples[-1].stat.major_faults - self.samples[0].stat.major_faults if self.samples else 0

    @property
    def kernel_s(self) -> float:
        """CPU time that all threads have spent in the kernel."""
        return round(self.samples[-1].stat.kernel_s - self.samples[0].stat.kernel_s, 3) if self.samples else 0.0

    def counters(self) -> Iterator[Counter]:
        io = [(one.at_s, one.io) for one in self.samples if one.io]
        written = [(at_s, values[1]) for at_s, values in io]
        if io:
            yield make_counter("io", "bytes read", [(at_s, values[0]) for at_s, values in io])
            yield make_counter("io", "bytes written", written)
        yield from self._files(wrote=not written or written[-1][1] > written[0][1])
        if self._finished or self.children:
            yield make_counter("child", "children finished", [(one.at_s, one.finished) for one in self.samples])
        steps = [(one.at_s, one.step) for one in self.samples if one.step is not None]
        if steps:
            yield make_counter("beat", "harness.beat", steps)

    def _files(self, wrote: bool) -> Iterator[Counter]:
        """A file that several processes write (a log, inherited) grows for the one that wrote anything at all."""
        for path in dict.fromkeys(path for sample in self.samples for path in sample.files):
            seen = [(sample.at_s, sample.files[path]) for sample in self.samples if path in sample.files]
            by_position = len({one.size for _, one in seen}) == 1 and len({one.position for _, one in seen}) > 1
            values = [(at_s, one.position if by_position else one.size) for at_s, one in seen]
            if wrote or len({value for _, value in values}) == 1:
                yield make_counter("file", path, values)


def make_counter(kind: Kind, name: str, seen: Sequence[tuple[float, int]], frame: CrashFrame | None = None) -> Counter:
    """`seen`: (time, value)."""
    return Counter(kind, name, tuple(round(at_s, 3) for at_s, _ in seen), tuple(value for _, value in seen), frame)


def _read_threads(pid: int) -> Iterator[tuple[int, Stat]]:
    for tid in list_tids(pid):
        with contextlib.suppress(OSError):  # it has ended
            yield tid, read_stat(pid, tid)


def _read_io(pid: int) -> tuple[int, int] | None:
    """rchar and wchar: what it asked for, cached or not; man 5 proc_pid_io."""
    try:
        words = Path(f"/proc/{pid}/io").read_text().split()
    except OSError:
        return None
    return int(words[1]), int(words[3])


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
