"""What moves in processes and those below them, for as long as they live, and how they end. Linux.

Only /proc is read, about once a second and within a small share of one core; nothing is stopped. How long is too long
without movement is decided elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence

from harness import native
from harness.capture.living.counters.process import Sample, Tally
from harness.capture.living.identity import find_family, read_in_time, read_outputs
from harness.capture.living.look import check_target
from harness.capture.living.own_processes import is_harness
from harness.capture.living.processes import leave_out_descendants
from harness.capture.machine.kernel_log import read_kernel_lines
from harness.capture.machine.killers import Killers, Sent
from harness.capture.proc import age_s, open_pidfd, read_argv, read_exit, read_stat
from harness.capture.stacks.py_spy import Spy
from harness.capture.usage.sampler import Sampler
from harness.capture.usage.timeline import make_timeline
from harness.errors import HarnessError
from harness.evidence.living.look import Counter, ThreadState
from harness.evidence.living.watching import Sight, ThreadSight
from harness.evidence.memory import Timeline

_MOST_PROCESSES = 128
_OWN_SHARE = 0.005  # of one core, for the samples
_FASTEST_S = 0.1
_GROWTH = 1.02
_MOST_EVENTS = 256
_LINES_S, _LINES_DEADLINE_S, _MOST_LINES = 6.0, 2.0, 10
_NOT_SEEN = "status not visible to us"


class Watched:
    """One target and all below it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.argv = read_argv(pid) or (read_stat(pid).name,)  # of a zombie nothing else is left
        self.pidfd = open_pidfd(pid)
        self.tallies = {pid: Tally(pid)}
        self.moving: list[Counter] = []
        self.wait_status: int | None = None
        self.how_seen = ""
        self.ended = False
        self._rose = time.monotonic()
        self.sampler = Sampler(time.monotonic_ns(), in_our_groups=False)
        self.sampler.sample([pid])
        self._started_s = read_stat(pid).started_s
        self._spy = Spy(pid)
        self._lines_due_s = 0.0

    def close(self) -> None:
        for tally in self.tallies.values():
            tally.close()

    @property
    def is_alone(self) -> bool:
        return len(self.tallies) < 2

    @property
    def rests_s(self) -> float:
        """For how long nothing has moved at all, of whatever thread or process."""
        return time.monotonic() - self._rose

    def look_at_lines(self, at_s: float) -> None:
        """For those who look on: where its Python is on CPU, rarely, and without stopping it."""
        if self._spy.works and at_s >= self._lines_due_s:
            self._lines_due_s = at_s + _LINES_S
            self._spy.sample(at_s, _LINES_DEADLINE_S)
            del self._spy.sightings[:-_MOST_LINES]

    def sample(self, at_s: float) -> None:
        if time.monotonic() >= self.sampler.due:
            self.sampler.sample(self.tallies)
        states = {pid: about for pid in self.tallies if (about := _read_state(pid))}
        children: dict[int, dict[int, ThreadState]] = {pid: {} for pid in self.tallies}
        for pid, (state, ppid) in states.items():
            if ppid in children:
                children[ppid][pid] = state
        self.moving = []
        for pid, tally in list(self.tallies.items()):
            if pid in states:
                self._take(tally, at_s, children[pid])
            elif pid != self.pid:
                self.tallies.pop(pid).close()

    def _take(self, tally: Tally, at_s: float, children: dict[int, ThreadState]) -> None:
        """A sample that does not come back in time is none: the kernel holds that process."""
        if read_in_time(lambda: tally.take(at_s, children), None) is None:
            return
        del tally.samples[:-2]
        rising = [counter for counter in tally.counters() if len(counter.values) > 1 and counter.rises]
        if rising and not is_harness(tally.pid):
            self._rose = time.monotonic()
            self.moving += [counter for counter in rising if may_be_of_line(counter, tally.pid)]

    def is_gone(self) -> bool:
        """For kernels without pidfds. A zombie has ended; its parent only has not asked how."""
        try:
            about = read_stat(self.pid)
        except OSError:
            return True
        return about.state in "ZX" or about.started_s != self._started_s

    def last_output_s(self) -> float | None:
        """How long ago something was written where its stdout and stderr lead; null when that is no file."""
        ages = [output.quiet_s for output in read_outputs(self.pid)[1:] if output.quiet_s is not None]
        return min(age_s(self._started_s), *ages) if ages else None

    def timeline(self) -> Timeline:
        return make_timeline(self.sampler)

    def describe(self) -> Sight:
        pairs = [(tally.samples[0], tally.samples[-1]) for tally in self.tallies.values() if tally.samples]
        threads = sorted((row for pair in pairs for row in _threads_of(*pair)), key=lambda row: -row.cpu)
        return Sight(
            pid=self.pid,
            argv=self.argv,
            processes=len(self.tallies),
            threads=tuple(threads),
            cpu=sum(row.cpu for row in threads),
            rss_bytes=sum(after.stat.rss_bytes for _, after in pairs),
            output_age_s=read_in_time(self.last_output_s, None),
            rests_s=self.rests_s,
            hot=tuple(self._spy.hot_spots()),
            moving=tuple(f"{counter.name} +{counter.values[-1] - counter.values[0]:,}" for counter in self.moving),
        )


class Watching:
    """Several targets, sampled together. One that is below another is watched with that one."""

    def __init__(self, pids: Sequence[int], fastest_s: float, slowest_s: float) -> None:
        """HarnessError: one of them cannot be watched."""
        if sys.platform != "linux":
            hint = f"sudo py-spy top --pid {pids[0]}"
            raise HarnessError("Living processes can be watched on Linux only, so far.", hint=hint)
        self.targets = {
            pid: Watched(pid) for pid in leave_out_descendants([check_target(pid) for pid in dict.fromkeys(pids)])
        }
        self.begun_ns = time.monotonic_ns()
        self.interval_s = max(_FASTEST_S, fastest_s)
        self._slowest_s = slowest_s
        self._seen: set[int] = set()
        self._told: dict[int, int] = {}
        self._poll = select.poll()
        self._by_fd = {one.pidfd: one for one in self.targets.values() if one.pidfd is not None}
        for fd in self._by_fd:
            self._poll.register(fd, select.POLLIN)
        self.killers = Killers(self.begun_ns, self.targets)
        self.killers.open()
        if self.killers.fd is not None:
            self._poll.register(self.killers.fd, select.POLLIN)
        self._news_fd = None if knows_exits() else open_news()
        if self._news_fd is not None:
            self._poll.register(self._news_fd, select.POLLIN)

    def close(self) -> None:
        for one in self.targets.values():
            one.close()
        for fd in (*self._by_fd, self._news_fd):
            if fd is not None:
                os.close(fd)

    def now_s(self) -> float:
        return (time.monotonic_ns() - self.begun_ns) / 1e9

    def living(self) -> list[Watched]:
        return [one for one in self.targets.values() if not one.ended]

    def sample(self) -> None:
        used_s = time.process_time()
        self._find_members()
        for one in self.living():
            one.sample(self.now_s())
        affordable_s = (time.process_time() - used_s) / _OWN_SHARE
        self.interval_s = max(min(self.interval_s * _GROWTH, self._slowest_s), affordable_s)

    def _find_members(self) -> None:
        known = {pid: one for one in self.living() for pid in one.tallies}
        for pid in find_family(tuple(known), self._seen):
            if pid not in known and len(known) < _MOST_PROCESSES:
                with contextlib.suppress(OSError):  # it has ended already
                    if one := known.get(read_stat(pid).ppid):
                        one.tallies[pid] = Tally(pid)
                        known[pid] = one

    def wait(self, for_s: float) -> list[Watched]:
        """Those that ended, as soon as one does."""
        ended = []
        for fd, _ in self._poll.poll(max(0.0, for_s) * 1000):
            if fd == self._news_fd:
                self._read_news(fd)
            elif fd == self.killers.fd:
                self.killers.read()
            else:
                self._poll.unregister(fd)
                ended.append(self._by_fd.pop(fd))
        ended += [one for one in self.living() if one.pidfd is None and one.is_gone()]
        for one in ended:
            self._note_end(one)
        return ended

    def _note_end(self, one: Watched) -> None:
        one.ended = True
        one.sampler.note_end(one.pid)
        if one.pidfd is not None:
            one.wait_status, one.how_seen = read_exit(one.pidfd, one.pid)
            os.close(one.pidfd)
        if self._news_fd is not None:
            self._read_news(self._news_fd)
        if one.wait_status is None and one.pid in self._told:
            one.wait_status, one.how_seen = self._told[one.pid], "exit status from the kernel (process connector)"
        one.how_seen = one.how_seen or _NOT_SEEN

    def _read_news(self, fd: int) -> None:
        ffi, lib = native.load()
        events = ffi.new(f"struct harness_process[{_MOST_EVENTS}]")
        for index in range(lib.harness_processes_read(fd, events, _MOST_EVENTS)):
            if events[index].pid in self.targets and events[index].ppid == 0:
                self._told[events[index].pid] = int(events[index].status)

    def sender_of(self, pid: int, signo: int) -> Sent | None:
        """Who sent the signal that ended it, where the kernel tells; of several SIGKILLs the first one killed."""
        self.killers.read()
        own = [sent for sent in self.killers.sent if (sent.pid, sent.signo) == (pid, signo)]
        return (own[0] if signo == signal.SIGKILL else own[-1]) if own else None

    def kernel_lines(self, pid: int) -> list[str]:
        """What the kernel said about it since we came: the killer of last resort names whom it kills."""
        lines = read_kernel_lines({pid}, self.begun_ns)[0]
        return [line.text for line in lines if re.search(rf"\b{pid}\b", line.text)]


def may_be_of_line(counter: Counter, pid: int) -> bool:
    """What its main thread moved outside, or nobody else is seen to have; the rest is for a look to judge."""
    if len(counter.values) < 2 or not counter.rises or counter.kind == "ended" or counter.name == "bytes read":
        return False
    return counter.tid == pid or (counter.tid is None and counter.kind != "io")


def knows_exits() -> bool:
    """Whether a pidfd tells how a process ended after its parent has collected it (Linux 6.15): tried on a child."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    try:
        pidfd = os.pidfd_open(child)
    except (OSError, AttributeError):
        os.waitpid(child, 0)
        return False
    os.waitpid(child, 0)
    try:
        return read_exit(pidfd, child)[0] is not None
    finally:
        os.close(pidfd)


def open_news() -> int | None:
    """The kernel's process connector, for root. The second choice: it tells of every birth on the machine."""
    try:
        fd = int(native.load()[1].harness_processes_open())
    except HarnessError:
        return None  # on another host our library is not there
    return fd if fd >= 0 else None


def _read_state(pid: int) -> tuple[ThreadState, int] | None:
    with contextlib.suppress(OSError):
        about = read_stat(pid)
        return about.state, about.ppid
    return None


def _threads_of(before: Sample, after: Sample) -> Iterator[ThreadSight]:
    span_s = max(after.at_s - before.at_s, 0.001)
    for tid, about in after.threads.items():
        used_s = about.cpu_s - before.threads[tid].cpu_s if tid in before.threads else 0.0
        yield ThreadSight(tid, about.name, about.state, used_s / span_s)
