"""Which process is the cause of how the command ended, and which ends are only its consequences.

Decided by the tree of processes that was seen: who failed first, whose status was passed on, and of whom the command
itself says that it was lost, in the form in which a known library says it. A number or a word in a text names nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from harness.diagnose import lastwords
from harness.diagnose.failures import CRASH_SIGNALS, Failures, is_wrapper, passes_on
from harness.diagnose.lastwords import Notice, Traceback
from harness.diagnose.verdict import Ground
from harness.evidence.model import Ending, Evidence, Process, name_signal

# A worker runs the same program as its parent (fork, multiprocessing, a rank); a child runs another one.
Role = Literal["main", "worker", "child"]
_POOLS = ("multiprocessing", "loky")  # in the command of a worker that was spawned; loky is joblib's

# Exceptions by which a parent says that a child of its failed, whatever their message: concurrent.futures, torch,
# subprocess, joblib, Dask, nbclient, Ray.
_LOST_CHILD = re.compile(
    r"Broken(?:ProcessPool|Executor)|ChildFailedError|Process(?:Exited|Raised)Exception|CalledProcessError"
    r"|TerminatedWorkerError|KilledWorker|DeadKernelError|WorkerCrashedError|ActorDiedError"
)
# Others that say so in their message.
_LOST_WORKER = re.compile(
    r"RuntimeError: DataLoader worker \(pid\(?s?\)? [\d, ]+\) (?:is killed by signal|exited unexp)"
)
# What a parent prints of a child that it lost, where it raises nothing: pytest-xdist, torchrun, Jupyter.
_SAYS_LOST = re.compile(
    r"worker 'gw\d+' crashed while running .*|\[gw\d+\] node down: .*|.*Kernel died before replying to kernel_info"
    r"|E\d{4} .*/elastic/multiprocessing/api\.py:\d+\] failed \(exitcode: -?\d+\)",
    re.MULTILINE,
)
# What one gets who talks to a process that is gone.
_LOST_PEER = frozenset(
    ["EOFError", "BrokenPipeError", "ConnectionResetError", "ConnectionAbortedError", "IncompleteReadError"]
)
# A pool of multiprocessing starts another worker in silence; who waits for what the lost one had, waits for ever.
_LOST_RESULT = "multiprocessing.context.TimeoutError"
_LOST_PEER_TEXT = re.compile(
    r"Connection (?:closed|reset) by peer|Broken pipe|remote process exited|Connection refused"
)


class Culprit(NamedTuple):
    """`seen`: its ending came from the kernel, not from what another process printed.

    `linked`: the command says, in words or by its status, that this process's end ended it.
    """

    role: Role
    pid: int | None
    ending: Ending | None
    ended_s: float | None
    seen: bool
    linked: bool
    grounds: tuple[Ground, ...]
    rank: str | None = None

    @property
    def signame(self) -> str | None:
        return self.ending.signame if self.ending else None


class Words(NamedTuple):
    """What is printed about ends. `exceptions`: in the order in which they were printed."""

    notices: list[Notice]
    exceptions: list[Traceback]
    says_lost: Ground | None

    @classmethod
    def of(cls, evidence: Evidence) -> Words:
        said = next(lastwords.search(evidence.transcripts, _SAYS_LOST), None)  # anchored, as all notices are
        return cls(
            lastwords.find_notices(evidence.transcripts),
            lastwords.find_tracebacks(evidence.transcripts),
            Ground(f"printed: {said[0][0].strip()}", str(said[1])) if said else None,
        )


def find_culprit(evidence: Evidence, words: Words) -> Culprit:
    failures = Failures(evidence)
    main = failures.main
    if main is None or main.ending is None:
        return _reported(main, words.notices) or Culprit("main", evidence.pid, None, None, False, True, ())
    if main.ending.exit_code == 0:
        return _of(evidence, main)
    if evidence.origin == "log":
        return _reported(main, words.notices) or _of(evidence, main)
    return _find_passed_on(failures, main) or _find_by_words(failures, main, words) or _of(evidence, main)


def _find_passed_on(failures: Failures, main: Process) -> Culprit | None:
    """A shell, a debugger or a launcher ends as the last of its children that failed has ended; and so may that one."""
    found = main
    while below := _whose_end_it_passes_on(failures, found):
        found = below
    if found is main:
        return None
    ground = Ground(f"the command passed it on as {_tell(main.ending)}", "wait status")
    return _of(failures.evidence, found, grounds=(ground,) if found.ending != main.ending else ())


def _whose_end_it_passes_on(failures: Failures, process: Process) -> Process | None:
    for other in reversed(failures.before(process)):
        assert process.ending is not None and other.ending is not None
        same = process.ending == other.ending and is_wrapper(process)
        if passes_on(process.ending.exit_code, other.ending) or same or failures.timed_out(process, other):
            return other
    return None


def _find_by_words(failures: Failures, main: Process, words: Words) -> Culprit | None:
    """By what the command itself says of its own end; where it says nothing, by who failed before it. Null: itself."""
    evidence, own = failures.evidence, _own_exception(failures, main, words)
    noticed = _noticed(failures, main, words.notices)
    if noticed is not None or (main.ending and main.ending.signo is not None):
        return noticed
    lost = _says_it_lost_one(own, words)
    if own is not None and lost is None and own.name not in _LOST_PEER and own.type != _LOST_RESULT:
        return None
    if ranks := _failed_ranks(failures, words):
        linked = lost is not None or main.ending == ranks[0].ending
        return _of(evidence, ranks[0], linked=linked, grounds=(lost,) if lost else ())
    candidates = [process for process in failures.before(main) if not failures.was_told_to_leave(process)]
    if lost is not None and candidates:
        return _choose_lost(failures, main, candidates, lost)
    if not evidence.sees_births and (reported := _reported(main, words.notices)):
        return reported
    return next(
        (
            _of(evidence, process, linked=False)
            for process in candidates
            if _has_crashed(process) and (own is not None or not failures.went_on_after(process, main))
        ),
        None,
    )


def _failed_ranks(failures: Failures, words: Words) -> list[Process]:
    """The first that failed first. One that merely lost its peer failed because of another, which may end later."""

    def lost_peer(rank: Process) -> bool:
        uncaught = failures.uncaught(rank)
        text = find_printed(uncaught.type, uncaught.at_s, rank.rank, words.exceptions).text if uncaught else ""
        return _LOST_PEER_TEXT.search(text) is not None

    ranks = [rank for rank in failures.failed_ranks() if not failures.was_told_to_leave(rank)]
    return sorted(ranks, key=lost_peer)


def _has_crashed(process: Process) -> bool:
    return process.ending is not None and process.ending.signame in CRASH_SIGNALS


def _choose_lost(failures: Failures, main: Process, candidates: list[Process], lost: Ground) -> Culprit:
    """The last that a signal ended; without one, the last that failed. An earlier loss was got over.

    Where nobody tells who sent a SIGTERM, it is the pool's own to those that are left, if another was not replaced.
    """
    killed = [process for process in candidates if process.ending and process.ending.signo is not None]
    unasked = [process for process in killed if process.ending and process.ending.signame != "SIGTERM"]
    lasting = [process for process in unasked if not failures.went_on_after(process, main)]
    return _of(failures.evidence, (lasting or killed or candidates)[-1], grounds=(lost,))


def _own_exception(failures: Failures, main: Process, words: Words) -> Traceback | None:
    """What ended the command itself, as far as it can be known: told by it, or the last that was printed."""
    if uncaught := failures.uncaught(main):
        return find_printed(uncaught.type, uncaught.at_s, main.rank, words.exceptions)
    if failures.exit(main) is not None:
        return None
    return next((item for item in reversed(words.exceptions) if item.thread is None and item.rank is None), None)


def find_printed(name: str, at_s: float, rank: str | None, exceptions: Iterable[Traceback]) -> Traceback:
    """The printed form of an exception that was told of: of that type, of that rank, the nearest in time.

    A program may print its exceptions in a form of its own; then there are only its name and where that comes from.
    """
    same = [item for item in exceptions if item.name == name.rpartition(".")[2] and item.thread is None]
    same = [item for item in same if not item.reraised and item.rank in (None, rank)]
    place = lastwords.Place("crash link", 0, at_s)
    unprinted = Traceback(name, "", (), None, False, False, place, place, rank)
    return min(reversed(same), key=lambda item: abs((item.end.at_s or at_s) - at_s), default=unprinted)


def _says_it_lost_one(own: Traceback | None, words: Words) -> Ground | None:
    if own is None:
        return words.says_lost
    return Ground(f"the command raised {own.sentence}", str(own.end)) if tells_of_lost_child(own) else None


def tells_of_lost_child(item: Traceback) -> bool:
    """A parent's exception, which is never the cause itself."""
    return bool(_LOST_CHILD.fullmatch(item.name) or _LOST_WORKER.match(item.text))


def _noticed(failures: Failures, main: Process, notices: list[Notice]) -> Culprit | None:
    """A process that a notice names, and that was seen to end so."""
    for process in failures.before(main):
        for notice in notices:
            if notice.pid == process.pid and process.ending and notice.signame == process.ending.signame:
                ground = Ground(f"printed: {notice.text}", str(notice.place))
                return _of(failures.evidence, process, grounds=(ground,))
    return None


def _reported(main: Process | None, notices: list[Notice]) -> Culprit | None:
    """Where processes may have been missed: what was printed about one, or a status that a shell makes of a signal."""
    if notices:
        first = notices[0]
        ending = Ending(signo=_signo(first.signame))
        who = "it" if first.role == "itself" else "its parent"
        ground = Ground(f"{who} printed: {first.text}", str(first.place))
        role: Role = "worker" if first.role == "worker" else "child"
        return Culprit(role, first.pid, ending, first.place.at_s, seen=False, linked=True, grounds=(ground,))
    code = main.ending.exit_code if main is not None and main.ending is not None else None
    if code is None or not is_wrapper(main) or name_signal(code - 128) not in CRASH_SIGNALS | {"SIGKILL"}:
        return None
    fact = (
        f"exit status {code} = 128 + {code - 128} ({name_signal(code - 128)}): a command inside it died of that signal"
    )
    ground = Ground(fact, "wait status")
    return Culprit("child", None, Ending(signo=code - 128), None, seen=False, linked=True, grounds=(ground,))


def _of(evidence: Evidence, process: Process, *, linked: bool = True, grounds: tuple[Ground, ...] = ()) -> Culprit:
    role = role_of(evidence, process)
    who = "the command" if role == "main" else f"{role} process {process.pid}"
    ground = Ground(f"{who} ended with {_tell(process.ending)}", process.source or "wait status")
    return Culprit(
        role,
        process.pid,
        process.ending,
        process.ended_s,
        process.ending is not None,
        linked,
        (ground, *grounds),
        process.rank,
    )


def _tell(ending: Ending | None) -> str:
    return "unknown" if ending is None else ending.signame or f"exit status {ending.exit_code}"


def role_of(evidence: Evidence, process: Process) -> Role:
    if process.pid == evidence.pid:
        return "main"
    if process.rank is not None:
        return "worker"
    parent = next((other for other in evidence.processes if other.pid == process.ppid), None)
    if parent is None or is_wrapper(process):
        return "child"
    # A process first seen after its death shows no argv any more, but maybe still the name it had; one that its parent
    # had collected by then shows neither, and below anything but a shell that was a fork.
    unseen = not process.argv and (process.name == parent.name or (not process.name and not is_wrapper(parent)))
    forked = process.argv == parent.argv or unseen
    if forked or any(pool in word for word in process.argv for pool in _POOLS):
        return "worker"
    return "child"


def _signo(signame: str) -> int:
    import signal

    return int(signal.Signals[signame])
