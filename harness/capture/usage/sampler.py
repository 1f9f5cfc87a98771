"""Memory, swap, threads and descriptors of the command's processes over time, with their limits and control groups.

Fast at the start and while memory grows, slow while it is flat; never more than a small share of one core. Decides
nothing. Imports little (see supervise.py); `timeline.py` makes evidence of it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from harness.capture.machine import cgroup
from harness.capture.proc import FIELD_COLLECTED_FAULTS, FIELD_STIME, FIELD_UTIME, read_fields, read_file
from harness.capture.usage.courses import PSS_EVERY_S, GroupCourse, ProcessCourse
from harness.capture.usage.series import Series

# Of one core. The budget is 0.5 %; what wakes us up costs something besides.
_SHARE = 0.002
# CPU time that may be used ahead of its time: for the first moments, and for sudden growth.
_MOST_CREDIT_S = 0.01
_FASTEST_S, _SLOWEST_S = 0.02, 5.0
# A change of the total by this share is growth (or its end), and worth a closer look.
_CHANGE = 0.02
_TIGHT_S = 0.25  # when a limit is near
# Processes come and go for a week: the series of the smallest ones that have ended are dropped.
_MOST_PROCESSES = 256
# Counting shared pages walks the page tables: about 10 ms for each GiB, with the process's map locked.
_FIRST_PSS_S, _PSS_SHARE, _PSS_MOST_BYTES = 5.0, 0.0005, 16 << 30
_GROUPS_EVERY, _YOUNG = 16, 4  # samples; a process seldom moves to another control group, but for its first moments
_NAMES = {
    b"cpu time": "RLIMIT_CPU",
    b"file size": "RLIMIT_FSIZE",
    b"data size": "RLIMIT_DATA",
    b"stack size": "RLIMIT_STACK",
    b"processes": "RLIMIT_NPROC",
    b"open files": "RLIMIT_NOFILE",
    b"address space": "RLIMIT_AS",
    b"locked memory": "RLIMIT_MEMLOCK",
}


class Sampler:
    """`ours`: pids of our own processes, which share the command's control group and are no strangers there.

    `in_our_groups`: the command starts in our own control groups, so that they are followed from the beginning.
    """

    def __init__(
        self, started_ns: int, ours: Iterable[int] = (), root: Path = Path("/"), *, in_our_groups: bool = True
    ) -> None:
        self.processes: dict[int, ProcessCourse] = {}
        self.groups: dict[str, GroupCourse] = {}
        self.pids_refused: dict[str, int] = {}
        self.total, self.available = Series(), Series()
        self.machine_bytes: int | None = None
        self.swap_bytes: int | None = None
        self.samples = 0
        self.spent_s = 0.0
        self._started_ns = started_ns
        self._ours = ours
        self._root = root
        self._proc = str(root / "proc")
        self._chains: dict[bytes, tuple[str, ...]] = {}
        self._interval_s = _FASTEST_S
        self._credit_s, self._planned = _MOST_CREDIT_S, time.monotonic()
        self._next_pss_s = _FIRST_PSS_S
        works = sys.platform == "linux" or root != Path("/")
        self.due = time.monotonic() + _FASTEST_S if works else float("inf")
        self._kills_before = self._read_machine_kills() if works else None
        if works and in_our_groups:
            self._find_groups("self")

    def now_s(self) -> float:
        return (time.monotonic_ns() - self._started_ns) / 1e9

    def sample(self, pids: Iterable[int]) -> None:
        begun, now_s, before = time.thread_time(), self.now_s(), self.total.last
        living = set(pids)
        self.samples += 1
        total = sum([self._sample_process(pid, now_s) for pid in living])
        if total:  # else all of them are about to go: their memory is gone first, and that is not how they were
            self.total.add(now_s, total)
        for group in self.groups.values():
            group.sample(now_s)
        self._read_machine(now_s)
        if self.samples % _GROUPS_EVERY == 1:
            self._count_others()
        self._forget_small(living)
        cost_s = time.thread_time() - begun
        self._plan(total, before, cost_s, living)
        if now_s >= self._next_pss_s:
            self._sample_shared(living, now_s)  # has a budget of its own, else it would be followed by silence
        self.spent_s += time.thread_time() - begun

    def _plan(self, total: int, before: int | None, cost_s: float, living: set[int]) -> None:
        changed = before is None or abs(total - before) > _CHANGE * max(total, before)
        wanted_s = self._interval_s / 2 if changed else self._interval_s * 1.5
        processes = (self.processes[pid] for pid in living & self.processes.keys())
        tight = any(one.is_tight() for one in self.groups.values()) or any(one.is_tight() for one in processes)
        slowest_s = _TIGHT_S if tight else _SLOWEST_S
        self._interval_s = min(slowest_s, max(_FASTEST_S, wanted_s))
        now = time.monotonic()
        self._credit_s = min(_MOST_CREDIT_S, self._credit_s + (now - self._planned) * _SHARE) - cost_s
        self._planned = now
        self.due = now + max(self._interval_s, -self._credit_s / _SHARE)

    def _sample_process(self, pid: int, now_s: float) -> int:
        """Its resident bytes; 0 for one that is gone."""
        course = self.processes.get(pid)
        if course is None or course.ended:
            course = self.processes[pid] = ProcessCourse(pid)
        try:
            status = read_file(f"{self._proc}/{pid}/status")
        except OSError:
            return 0
        rss = _find(status, b"\nVmRSS:") << 10
        if not rss:  # a zombie
            return 0
        course.rss.add(now_s, rss)
        course.swap.add(now_s, _find(status, b"\nVmSwap:") << 10)
        course.threads.add(now_s, _find(status, b"\nThreads:"))
        course.peak_rss_bytes = max(course.peak_rss_bytes, _find(status, b"\nVmHWM:") << 10)
        course.vsize_bytes = _find(status, b"\nVmSize:") << 10
        course.peak_vsize_bytes = max(course.peak_vsize_bytes, _find(status, b"\nVmPeak:") << 10)
        course.data_bytes = max(course.data_bytes, _find(status, b"\nVmData:") << 10)
        with contextlib.suppress(OSError):
            if descriptors := os.stat(f"{self._proc}/{pid}/fd").st_size:  # noqa: PTH116 (their number since Linux 6.2)
                course.fds.add(now_s, descriptors)
        if course.samples < _YOUNG or course.samples % _GROUPS_EVERY == 0:
            self.read_limits(pid)
            course.groups = self._find_groups(pid)
        course.samples += 1
        return rss

    def read_limits(self, pid: int) -> None:
        """Also of a process that has just ended and was not collected yet."""
        course = self.processes.setdefault(pid, ProcessCourse(pid))
        with contextlib.suppress(OSError):
            for line in read_file(f"{self._proc}/{pid}/limits").splitlines():
                name, words = line[4:26].strip(), line[26:].split()
                if known := _NAMES.get(name):
                    course.limits[known] = (_number(words[0]), _number(words[1]))

    def note_end(self, pid: int) -> None:
        """It has ended, and maybe nobody has collected it yet: its limits and its CPU time can still be read.

        Page faults of the children that it had collected tell whether there were any: no process runs without some.
        """
        now_s = self.now_s()
        for group in self.groups.values():
            group.count_kills(now_s)
        self.read_limits(pid)
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = read_fields(pid, proc=self._proc)
            ticks = int(fields[FIELD_UTIME]) + int(fields[FIELD_STIME])
            self.processes[pid].cpu_s = ticks / os.sysconf("SC_CLK_TCK")
            self.processes[pid].has_collected = int(fields[FIELD_COLLECTED_FAULTS]) > 0
        self.processes[pid].ended = True

    def note_usage(self, pid: int, cpu_s: float, most_rss_bytes: int, floor_bytes: int | None) -> None:
        """What the kernel told when it was collected: of it and of all that it had collected itself (man 2 getrusage).

        What it had before it started its program counts too: `floor_bytes`, what its parent had at most; null: unknown.
        Above that, the number is its own if it had collected nobody.
        """
        course = self.processes.setdefault(pid, ProcessCourse(pid))
        course.ended = True
        course.cpu_s = cpu_s if course.cpu_s is None else course.cpu_s
        if floor_bytes is not None and most_rss_bytes > floor_bytes and course.has_collected is False:
            course.peak_rss_bytes = max(course.peak_rss_bytes, most_rss_bytes)
        elif floor_bytes is None or most_rss_bytes > floor_bytes:
            course.most_rss_bytes = most_rss_bytes

    def read_own_peak(self) -> int:
        """What we have had at most. getrusage would add what the process that started us had; 0: not to be read."""
        try:
            return _find(read_file(f"{self._proc}/self/status"), b"\nVmHWM:") << 10
        except OSError:
            return 0

    def note_children(self, pid: int, seen: bool) -> None:
        """Where the kernel did not tell whether it had collected any: whether any were seen."""
        course = self.processes.setdefault(pid, ProcessCourse(pid))
        if course.has_collected is None:
            course.has_collected = seen

    def note_peak(self, pid: int, peak_rss_bytes: int | None) -> None:
        """Read when it stood still in its own death: nothing was added to it."""
        if peak_rss_bytes is not None:
            course = self.processes.setdefault(pid, ProcessCourse(pid))
            course.peak_rss_bytes, course.most_rss_bytes = max(course.peak_rss_bytes, peak_rss_bytes), None

    def finish(self) -> None:
        """The last look at the groups, when the command has ended."""
        now_s = self.now_s()
        for group in self.groups.values():
            group.sample(now_s)
        self._count_others()

    def count_machine_kills(self) -> int | None:
        """OOM kills on the whole machine since the start; null where the kernel does not count them (before 4.13)."""
        now = self._read_machine_kills()
        return None if now is None or self._kills_before is None else now - self._kills_before

    def _read_machine_kills(self) -> int | None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(read_file(f"{self._proc}/vmstat").partition(b"\noom_kill ")[2].split(None, 1)[0])
        return None

    def _find_groups(self, pid: int | str) -> tuple[str, ...]:
        try:
            text = read_file(f"{self._proc}/{pid}/cgroup")
        except OSError:
            return ()
        if text not in self._chains:
            chain = cgroup.memory_groups(self._root, pid)
            for path in chain:
                self.groups.setdefault(str(path), GroupCourse(path, self.now_s()))
            for path in cgroup.pids_groups(self._root, pid):
                self.pids_refused.setdefault(str(path), cgroup.read_pids_refused(path))
            self._chains[text] = tuple(map(str, chain))
        return self._chains[text]

    def _count_others(self) -> None:
        known = {*self.processes, *self._ours, os.getpid()}
        for group in self.groups.values():
            members = cgroup.read_members(group.path)
            if members is not None:
                group.others = max(group.others or 0, len(members - known))

    def _read_machine(self, now_s: float) -> None:
        with contextlib.suppress(OSError):
            found = b"\n" + read_file(f"{self._proc}/meminfo")
            self.available.add(now_s, _find(found, b"\nMemAvailable:") << 10)
            self.machine_bytes = _find(found, b"\nMemTotal:") << 10
            self.swap_bytes = _find(found, b"\nSwapTotal:") << 10

    def _sample_shared(self, living: set[int], now_s: float) -> None:
        """Of one process, the one that was asked the longest ago."""
        courses = [self.processes[pid] for pid in living & self.processes.keys()]
        due = [course for course in courses if course.rss.last and course.rss.last < _PSS_MOST_BYTES]
        course = min(due, key=lambda course: course.shared_s, default=None)
        if course is None or now_s < course.shared_s + PSS_EVERY_S:
            return
        begun, course.shared_s = time.thread_time(), now_s
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = read_file(f"{self._proc}/{course.pid}/smaps_rollup")
            course.pss.add(now_s, int(text.partition(b"\nPss:")[2].split(None, 1)[0]) << 10)
        self._next_pss_s = now_s + (time.thread_time() - begun) / _PSS_SHARE

    def _forget_small(self, living: set[int]) -> None:
        if len(self.processes) <= _MOST_PROCESSES + len(living):
            return
        gone = [course for pid, course in self.processes.items() if pid not in living]
        for course in sorted(gone, key=lambda course: course.peak_rss_bytes)[: _MOST_PROCESSES // 2]:
            del self.processes[course.pid]


def _number(word: bytes) -> int | None:
    return None if word == b"unlimited" else int(word)


def _find(text: bytes, name: bytes) -> int:
    """The number after a name; 0 where there is none. At each sample: proc.py reads every line, and takes longer."""
    at = text.find(name) + len(name)
    return int(text[at : at + 24].split(None, 1)[0]) if at >= len(name) else 0
