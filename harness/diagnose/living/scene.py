"""One look as the rules see it: the target first, then those below it, what stands still, what moves; and a finding."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from harness.documents.verdict import Ground, Remedy, Status
from harness.evidence.crash import CrashFrame
from harness.evidence.living.look import Counter, LivingProcess, LivingThread, Look

_BUSY_SHARE = 0.2
_RUNNABLE_SHARE = 0.02  # of one that wants the CPU and gets little of it
_LOCAL_SAMPLES = 3


class Finding(NamedTuple):
    """`thread` null: the process as a whole. `culprit`: the native frame that names the component.

    `remedies` stand for those of the kind where the cause allows better ones; `ask`: whom to look at next, another
    process. `ends_itself`: looking longer at it would show the same.
    """

    status: Status
    process: LivingProcess
    thread: LivingThread | None
    detail: str
    grounds: tuple[Ground, ...] = ()
    against: tuple[str, ...] = ()
    culprit: CrashFrame | None = None
    remedies: tuple[Remedy, ...] = ()
    ask: int | None = None
    ends_itself: bool = False


Key = tuple[int, int | None]


class Step(NamedTuple):
    """One thread of the line of work; `thread` null: the process as a whole. `why`: what the step before waits for.

    `proven`: that one waits for this one is shown; false: it is one of those that it can wait for; null: that it waits
    for it at all is not shown. `choices`: where on the way here one of several was taken, each as (who waits, the one).
    `launches`: it waits for the end of the processes that come after it, and does nothing else. `after`: for whom it
    waits.
    """

    process: LivingProcess
    thread: LivingThread | None
    why: str
    proven: bool | None = True
    launches: bool = False
    choices: tuple[tuple[Key, Key], ...] = ()
    after: tuple[Key, ...] = ()

    @property
    def key(self) -> Key:
        return self.process.pid, self.thread.tid if self.thread else None


class Scene:
    """The look from one target: that process first, then those below it; `everybody` are all that were looked at.

    `stirring`: whatever rises. Of it `rising` is what the `line` of work moves: the target's main thread, and whom it
    is shown to wait for (filled in by `line`). `doubted`: of that what others may have moved beside it.
    """

    def __init__(self, look: Look, pid: int | None = None) -> None:
        self.look = look
        self.looked_s = max(look.looked_s, 0.001)
        self.everybody = look.processes
        roots = [pid] if pid is not None else list(look.targets)
        self.processes = tuple(self._below(roots))
        self.stirring = [
            (process, counter) for process in self.processes for counter in process.counters if moves(counter)
        ]
        self.line: tuple[Step, ...] = ()
        self.rising: list[tuple[LivingProcess, Counter]] = []
        self.doubted: list[Counter] = []

    def _below(self, pids: Iterable[int]) -> Iterable[LivingProcess]:
        waiting, seen = list(pids), set()
        while waiting:
            pid = waiting.pop(0)
            process = self.find(pid)
            if process is None or pid in seen:
                continue
            seen.add(pid)
            yield process
            waiting += [child.pid for child in self.children(process)]

    def find(self, pid: int) -> LivingProcess | None:
        return next((process for process in self.everybody if process.pid == pid), None)

    def children(self, process: LivingProcess) -> list[LivingProcess]:
        return [child for child in self.everybody if child.ppid == process.pid or child.pid in process.children]

    @property
    def rests(self) -> bool:
        """Nothing of it stirs, on the line of work or beside it: no counter rises, nobody computes or is at a disk."""
        threads = [thread for process in self.processes for thread in process.threads]
        return not self.stirring and not any(thread.state == "D" or self.is_busy(thread) for thread in threads)

    def is_busy(self, thread: LivingThread) -> bool:
        share = thread.cpu_s / self.looked_s
        return share >= _BUSY_SHARE or (thread.state == "R" and share >= _RUNNABLE_SHARE)

    def stands_still(self, thread: LivingThread) -> bool:
        """Asleep in one place for the whole look."""
        return thread.state in "SD" and not thread.changed and not self.is_busy(thread)

    def standing(self, process: LivingProcess) -> list[LivingThread]:
        """The main thread first."""
        found = [thread for thread in process.threads if self.stands_still(thread)]
        return sorted(found, key=lambda thread: thread.tid != process.pid)


def moves(counter: Counter) -> bool:
    """An integer in a frame has to be seen rising more than once, and to count what a loop uses up."""
    return len(counter.values) > 1 and counter.rises and (counter.kind != "local" or _proves(counter))


def _proves(counter: Counter) -> bool:
    return counter.consumes is True and len(counter.values) >= _LOCAL_SAMPLES


def stack_of(process: LivingProcess, thread: LivingThread) -> str:
    return f"stack of {process.pid}/{thread.tid}"
