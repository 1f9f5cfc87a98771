"""Which process is the cause of how the command ended, and which ends are only its consequences.

The order of ends comes from the evidence; a parent's word about its child counts where the kernel's was not seen.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Literal, NamedTuple

from harness.diagnose.lastwords import Notice, Traceback
from harness.diagnose.verdict import Ground
from harness.evidence.model import Ending, Evidence, Process, name_signal

# A worker runs the same program as its parent (fork, multiprocessing, a rank); a child runs another one.
Role = Literal["main", "worker", "child"]

CRASH_SIGNALS = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP", "SIGSYS"})
# A parent that ends for a reason of its own may end its children with these: no cause without the parent's word.
_SENT_SIGNALS = frozenset({"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGPIPE", "SIGALRM"})
_WRAPPERS = frozenset(
    ["sh", "bash", "dash", "zsh", "ksh", "ash", "busybox", "timeout", "env", "nice", "nohup", "stdbuf", "xargs"]
)
_CASCADE_WINDOW_S = 60.0
_SAME_MOMENT_S = 0.5
_POOL_WORDS = ("BrokenProcessPool", "ChildFailedError", "ProcessExitedException")


class Culprit(NamedTuple):
    """`seen`: its ending came from the kernel, not from what another process printed."""

    role: Role
    pid: int | None
    ending: Ending | None
    ended_s: float | None
    seen: bool
    linked: bool
    grounds: tuple[Ground, ...]

    @property
    def signame(self) -> str | None:
        return self.ending.signame if self.ending else None


def is_wrapper(process: Process | None) -> bool:
    if process is None:
        return False
    names = {PurePath(process.executable or "").name, PurePath(process.argv[0]).name if process.argv else ""}
    return bool(names & _WRAPPERS)


def main_process(evidence: Evidence) -> Process | None:
    return next((process for process in evidence.processes if process.pid == evidence.pid), None)


def find_culprit(evidence: Evidence, notices: list[Notice], tracebacks: list[Traceback]) -> Culprit:
    main = main_process(evidence)
    if main is not None and main.ending is not None and main.ending.exit_code == 0:
        return _of_process(evidence, main, linked=True)
    first = _first_death(evidence, main, notices, tracebacks)
    if first is not None:
        return first
    if reported := _reported_death(main, notices):
        return reported
    if main is None:
        return Culprit("main", evidence.pid, None, None, seen=False, linked=True, grounds=())
    failed = _failed_below(evidence, main)
    return _of_process(evidence, failed or main, linked=True)


def _first_death(
    evidence: Evidence, main: Process | None, notices: list[Notice], tracebacks: list[Traceback]
) -> Culprit | None:
    if main is None or main.ended_s is None or main.ending is None:
        return None
    crashed_s = {
        crash.pid: crash.at_s for crash in evidence.crashes
    }  # one that is looked at dies later than it crashed
    deaths = sorted(
        (process for process in evidence.processes if process is not main and _died_around(process, main)),
        key=lambda process: crashed_s.get(process.pid, process.ended_s or 0.0),
    )
    for process in deaths:
        assert process.ending is not None and process.ended_s is not None
        linked = _is_linked(process, main, notices, tracebacks)
        if main.ending.signo is not None and main.ended_s <= process.ended_s and not is_wrapper(main):
            continue
        if linked or process.ending.signame in CRASH_SIGNALS:
            return _of_process(evidence, process, linked=linked)
    return None


def _died_around(process: Process, main: Process) -> bool:
    if process.ended_s is None or process.ending is None or process.ending.signo is None or main.ended_s is None:
        return False
    return -_SAME_MOMENT_S <= main.ended_s - process.ended_s <= _CASCADE_WINDOW_S


def _is_linked(process: Process, main: Process, notices: list[Notice], tracebacks: list[Traceback]) -> bool:
    """The parent itself says, in words or by its status, that this child's death ended it."""
    assert process.ending is not None and main.ending is not None
    if any(notice.pid == process.pid for notice in notices):
        return True
    if main.ending.exit_code == process.ending.shell_code:
        return True
    if process.ending.signame in _SENT_SIGNALS - {"SIGKILL"}:
        return False
    if any(str(process.pid) in traceback.message for traceback in tracebacks):
        return True
    return any(word in traceback.type for traceback in tracebacks for word in _POOL_WORDS)


def _reported_death(main: Process | None, notices: list[Notice]) -> Culprit | None:
    if main is not None and main.ending is not None and main.ending.signo is not None:
        return None
    if notices:
        first = notices[0]
        ending = Ending(signo=_signo(first.signame))
        who = "it" if first.role == "itself" else "its parent"
        ground = Ground(f"{who} printed: {first.text}", str(first.place))
        role: Role = "worker" if first.role == "worker" else "child"
        return Culprit(role, first.pid, ending, first.place.at_s, seen=False, linked=True, grounds=(ground,))
    code = main.ending.exit_code if main is not None and main.ending is not None else None
    if code is not None and is_wrapper(main) and name_signal(code - 128) in CRASH_SIGNALS | {"SIGKILL"}:
        name = name_signal(code - 128)
        fact = f"exit status {code} = 128 + {code - 128} ({name}): a command inside it died of that signal"
        return Culprit(
            "child",
            None,
            Ending(signo=code - 128),
            None,
            seen=False,
            linked=True,
            grounds=(Ground(fact, "wait status"),),
        )
    return None


def _failed_below(evidence: Evidence, main: Process) -> Process | None:
    """The process whose failure a shell or a launcher of ranks passed on as its own."""
    if main.ending is None or main.ending.exit_code is None:
        return None
    failed = [
        process
        for process in evidence.processes
        if process is not main and process.ending is not None and process.ending.exit_code
        if (is_wrapper(main) and process.ending.exit_code == main.ending.exit_code) or process.rank is not None
    ]
    return min(failed, key=lambda process: process.ended_s or 0.0, default=None)


def _of_process(evidence: Evidence, process: Process, *, linked: bool) -> Culprit:
    ending = process.ending
    what = "unknown" if ending is None else ending.signame or f"exit status {ending.exit_code}"
    role = role_of(evidence, process)
    who = "the command" if role == "main" else f"{role} process {process.pid}"
    ground = Ground(f"{who} ended with {what}", process.source or "wait status")
    return Culprit(role, process.pid, ending, process.ended_s, ending is not None, linked, (ground,))


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
    if forked or any("multiprocessing" in word for word in process.argv):
        return "worker"
    return "child"


def _signo(signame: str) -> int:
    import signal

    return int(signal.Signals[signame])
