"""What living processes and those below them do during some seconds: the order of the samples, and their costs. Linux.

The time asked for is a deadline. Native stacks, which cost most, are taken once, and again only of what has moved out
of them and does not obviously get on; Python lines and locals about once a second, five times at least; /proc twice a
second; memory is searched beside all that. Every tool has a deadline. Decides nothing: a look is evidence.
"""

from __future__ import annotations

import math
import os
import pwd
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from harness.capture.living.device import Meter
from harness.capture.living.identity import find_family
from harness.capture.living.process_look import MANY_THREADS, Followed
from harness.capture.living.sample_text import sample_processes
from harness.capture.proc import read_stat, read_status
from harness.capture.stacks.pystack_engine import warm_engine
from harness.capture.stacks.quiet_ladder import Native
from harness.errors import HarnessError
from harness.evidence.gap import Gap
from harness.evidence.living.look import Look, ThreadState
from harness.version import __version__

_SAMPLE_S = 0.5
_SPY_S = 0.8
_SPIES = 5  # in the time asked for
_SPY_COST_S = 0.08  # of one process, on our side
_BUFFERS_S = 5.0
_TOOL_S, _SHORTEST_TOOL_S = 5.0, 1.0
_STACKS_S = 5.0  # without native frames a wait for a rank looks like one for a lock
_ALL_BUFFERS_S = 10.0
_MANY_STACKS_S = 15.0
_ALL_STACKS_S = 20.0
_AGAIN_SHARE = 4  # a second look at the stacks may take one part in so many
_ALL_TASKS_S = 6.0
_LATE_S = 0.5
_WAITS_S = 0.12  # to end with: waits, buffers, the last sample
_THREAD_S = 0.003
_MOST_PROCESSES = 128
_AT_A_TIME = max(1, min(4, (os.cpu_count() or 1) // 2))


def take_look(
    pids: Sequence[int],
    for_s: float = 5.0,
    on_sample: Callable[[Look], object] | None = None,
    native: Native = "auto",
) -> Look:
    """HarnessError when none of the processes can be looked at. `on_sample` gets what is known so far.

    `native`: whether its native stacks are worth a stop of the whole process ("always"), or wanted at all.
    """
    if sys.platform == "darwin":
        return sample_processes(pids, for_s)
    looking = _Looking(pids, for_s, native)
    try:
        return looking.run(on_sample)
    finally:
        looking.close()


class _Looking:
    def __init__(self, pids: Sequence[int], for_s: float, native: Native) -> None:
        self.for_s, self._native = for_s, native
        self.gaps: list[Gap] = []
        self.targets = self._check(pids)
        self.followed: dict[int, Followed] = {}
        self.samples = 0
        self._sample_due_s = 0.0
        self._seen: set[int] = set()
        self._from_the_start: set[int] = set()
        self._meter = Meter()
        self._started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self._begun = time.monotonic()
        self._end_s = for_s

    def close(self) -> None:
        for one in self.followed.values():
            one.close()

    def _check(self, pids: Sequence[int]) -> tuple[int, ...]:
        """Those that can be looked at; the others are gaps, or the error when there are none."""
        targets, errors = [], []
        for pid in dict.fromkeys(pids):
            try:
                targets.append(check_target(pid))
            except HarnessError as error:
                errors.append(error)
                self.gaps.append(Gap(f"process {pid}", str(error), error.hint))
        if not targets:
            raise errors[0] if errors else HarnessError("No process was named.", hint="harness ps")
        return tuple(dict.fromkeys(targets))[:_MOST_PROCESSES]

    def now_s(self) -> float:
        return time.monotonic() - self._begun

    def run(self, on_sample: Callable[[Look], object] | None) -> Look:
        self._sample()
        self._read_buffers()
        with _beside(warm_engine):
            self._spy()
        self._look_at_stacks(first=True)
        with _beside(self._look_at_images):
            self._follow(on_sample)
            self._sample()
            self._read_buffers(last=True)
            self._spy(last=True)
        self._finish()
        return self.describe()

    def _follow(self, on_sample: Callable[[Look], object] | None) -> None:
        if len(self.followed) > 1:
            self._end_s = max(self._end_s, self.now_s() + self.for_s / 2)
        while self._is_anybody_there() and self.now_s() < (until_s := self._end_s - self._reserve_s()):
            self._spy()
            self._read_buffers()
            self._look_ahead(until_s)
            if on_sample is not None:
                on_sample(self.describe())
            time.sleep(max(0.0, min(self._next_s(), until_s) - self.now_s()))
            self._sample_if_due()

    def _is_anybody_there(self) -> bool:
        return any(self.followed[pid].is_there for pid in self.targets)

    def _reserve_s(self) -> float:
        """What the end will take, at most half of the time."""
        again = [one.standing.took_s or one.last.threads * _THREAD_S for one in self._there() if self._looks_again(one)]
        spies = [one.spy.cost_s or _SPY_COST_S for one in self._there() if one.may_be_spied]
        return min(self.for_s / 2, _WAITS_S + sum([*again, *spies]) / _AT_A_TIME)

    def _look_ahead(self, until_s: float) -> None:
        """For locks and tasks memory is searched, which takes long: where there is time, not only at the end."""
        for one in self._there():
            if not one.has_waits and min(self._next_s(), until_s) > self.now_s():
                one.look_at_waits()
                one.look_ahead_at_tasks()

    def _look_at_images(self) -> None:
        for one in self._there():
            one.look_at_images()

    def _finish(self) -> None:
        """With as many samples of Python's lines as it takes to see what rises, if that takes but a little longer."""
        self._look_at_stacks(first=False)
        late_s = self._end_s + max(_LATE_S, self.for_s / _AGAIN_SHARE)
        while self.now_s() < late_s and any(one.has_few_samples for one in self._there() if one.role == "main"):
            self._spy(last=True)
        self._each(lambda one: one.look_into_calls(_STACKS_S), [one for one in self._there() if not one.is_fine])
        self._finish_buffers()
        self._look_at_tasks()
        for one in self._there():
            one.note_few_samples()

    def _look_at_tasks(self) -> None:
        end_s = self.now_s() + _ALL_TASKS_S
        for one in self._there():
            if self.now_s() < end_s:
                one.look_at_tasks()

    def _each(self, step: Callable[[Followed], None], ones: Sequence[Followed]) -> None:
        """Several at a time where there are cores to spare. No sample meanwhile: it would see them stopped by us."""
        for at in range(0, len(ones), _AT_A_TIME):
            some = ones[at : at + _AT_A_TIME]
            if len(some) == 1:
                step(some[0])
            else:
                with ThreadPoolExecutor(len(some)) as pool:
                    list(pool.map(step, some))
            self._sample_if_due()

    def _next_s(self) -> float:
        dues = [one.spy_due_s for one in self._there() if one.may_be_spied]
        return min([self._sample_due_s, *dues])

    def _there(self) -> list[Followed]:
        return [one for one in self.followed.values() if one.is_there]

    def _sample_if_due(self) -> None:
        if self._sample_due_s <= self.now_s():
            self._sample()

    def _sample(self) -> None:
        at_s = self.now_s()
        self._sample_due_s = at_s + _SAMPLE_S
        self._find_members()
        children: dict[int, dict[int, ThreadState]] = {pid: {} for pid in self.followed}
        for pid, one in self.followed.items():
            if one.last.ppid in children and (state := _read_state(pid)):
                children[one.last.ppid][pid] = state
        for pid, one in self.followed.items():
            one.sample(at_s, children[pid])
        for pid in [pid for pid, one in self.followed.items() if one.ended and pid not in self._from_the_start]:
            self.followed.pop(pid).close()  # its parent has counted it
        self._meter.sample(at_s)
        self.samples += 1

    def _find_members(self) -> None:
        for pid in find_family(tuple(self.followed) or self.targets, self._seen):
            if pid not in self.followed and len(self.followed) < _MOST_PROCESSES:
                try:
                    parent = self.followed.get(read_stat(pid).ppid)
                    self.followed[pid] = Followed(pid, parent, is_target=pid in self.targets, native=self._native)
                except OSError:
                    self._leave_out(pid)  # it has ended already
        if not self.samples:
            self._from_the_start = set(self.followed)
        if len(self.followed) == _MOST_PROCESSES and not any(gap.what == "more processes" for gap in self.gaps):
            self.gaps.append(Gap("more processes", f"only {_MOST_PROCESSES} are looked at"))

    def _leave_out(self, pid: int) -> None:
        """A target that has ended between the check and the first sample."""
        if pid not in self.targets:
            return
        error = HarnessError(f"There is no process {pid}.", hint="harness ps")
        self.targets = tuple(target for target in self.targets if target != pid)
        self.gaps.append(Gap(f"process {pid}", str(error), error.hint))
        if not self.targets:
            raise error

    def _left_s(self) -> float:
        """For a tool: until the end, and never so little that it could not answer."""
        return min(_TOOL_S, max(_SHORTEST_TOOL_S, self._end_s - self.now_s()))

    def _spy(self, last: bool = False) -> None:
        every_s = max(min(_SPY_S, self.for_s / _SPIES), _SPY_COST_S * len(self.followed))

        def spy(one: Followed) -> None:
            at_s = self.now_s()
            one.look_at_python(at_s, self._left_s())
            one.spy_due_s = at_s + every_s

        self._each(spy, [one for one in self._there() if last or one.spy_due_s <= self.now_s()])

    def _read_buffers(self, last: bool = False) -> None:
        """Of the targets now and then, to see whether they grow; of the others once. A few at a time, beside us."""
        for one in self._there():
            if one.buffers.is_ready:
                one.collect_buffers(self.now_s(), _SHORTEST_TOOL_S)
        under_way = sum(one.buffers.is_under_way for one in self._there())
        due = [one for one in self._there() if one.buffers_due_s <= self.now_s() or (last and one.role == "main")]
        for one in due[: max(0, _AT_A_TIME - under_way)]:
            one.start_buffers()
            one.buffers_due_s = self.now_s() + _BUFFERS_S if one.role == "main" else math.inf

    def _finish_buffers(self) -> None:
        end_s = self.now_s() + _ALL_BUFFERS_S

        def look(one: Followed) -> None:
            if self.now_s() > end_s:
                one.skip_buffers(f"there are {len(self.followed)} processes, and the time was over")
            elif one.buffers_due_s < math.inf or one.buffers.is_under_way:
                one.start_buffers(always=True)
                if one.buffers.is_under_way:
                    one.collect_buffers(self.now_s(), _TOOL_S)

        self._each(look, self._there())

    def _looks_again(self, one: Followed) -> bool:
        """Where another look at the stacks would tell something, and costs little beside the time asked for."""
        if one.is_fine or one.last.threads > MANY_THREADS:
            return not one.is_fine
        return one.standing.took_s <= self.for_s / _AGAIN_SHARE and one.standing.is_outdated

    def _look_at_stacks(self, first: bool) -> None:
        """Targets first. Of very many threads at the end only, and not of those that move: they stand for seconds."""
        end_s = self.now_s() + _ALL_STACKS_S

        def look(one: Followed) -> None:
            many = one.last.threads > MANY_THREADS
            if not many if first else self._looks_again(one):
                if self.now_s() < end_s:
                    one.look_at_stacks(_MANY_STACKS_S if many else _STACKS_S)
                else:
                    one.standing.skip_stacks(f"there are {len(self.followed)} processes, and the time was over")
            elif many and not first:
                one.standing.skip_stacks(
                    f"its {one.last.threads} threads would have to stand still for seconds, and it moves"
                )
            if not first:
                one.look_at_waits()

        self._each(look, self._there())

    def describe(self) -> Look:
        return Look(
            harness=__version__,
            platform=sysconfig.get_platform(),
            started=self._started,
            looked_s=round(self.now_s(), 2),
            samples=self.samples,
            targets=self.targets,
            processes=tuple(one.describe(tuple(self._meter.counters(pid))) for pid, one in self.followed.items()),
            gaps=tuple(self.gaps),
        )


@contextmanager
def _beside(work: Callable[[], None]) -> Iterator[None]:
    """In a thread, which has ended when the block is left: nothing may be forked while it runs."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        yield
        done.result()


def check_target(pid: int) -> int:
    """The process that is meant: a thread's id names its process. HarnessError: it cannot be looked at."""
    try:
        about, pid = read_stat(pid), read_status(pid).pid
    except OSError as error:
        raise HarnessError(f"There is no process {pid}.", hint="harness ps") from error
    if pid == os.getpid():
        raise HarnessError(f"Process {pid} is harness itself.", hint="harness ps")
    if about.is_kernel:
        raise HarnessError(f"Process {pid} is a thread of the kernel.", hint="harness ps")
    if about.state not in "ZX":
        _check_memory(pid)
    return pid


def _check_memory(pid: int) -> None:
    """What every tool needs; man 2 ptrace, "Ptrace access mode checking"."""
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError as error:
        owner = Path(f"/proc/{pid}").stat().st_uid
        whose = "may not be traced by you" if owner == os.getuid() else f"belongs to {_name_user(owner)}"
        hint = f"sudo harness attach {pid}" if os.getuid() else "harness ps"
        raise HarnessError(f"Process {pid} {whose}.", hint=hint) from error
    except OSError as error:
        raise HarnessError(f"There is no process {pid}.", hint="harness ps") from error


def _name_user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _read_state(pid: int) -> ThreadState | None:
    try:
        return read_stat(pid).state
    except OSError:
        return None
