"""Which processes of a command failed, and in which order: from births, ends, and what each told when it left.

The order of things as they were seen, never how long they took. What a failure means for the command: see `culprit`.
"""

from __future__ import annotations

from pathlib import PurePath

from harness.evidence.model import Ending, Evidence, Exit, Process, Uncaught

CRASH_SIGNALS = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP", "SIGSYS"})
_WRAPPERS = frozenset(
    (
        *("sh", "bash", "dash", "zsh", "ksh", "ash", "busybox", "xargs", "time", "sudo", "doas", "setsid"),
        *("timeout", "env", "nice", "nohup", "stdbuf"),
    )
)

_TIMED_OUT = 124  # man 1 timeout


class Failures:
    """The failed processes of one run."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.main = main_process(evidence)
        self._by_pid = {process.pid: process for process in evidence.processes}
        self._crashed_s = {crash.pid: crash.at_s for crash in evidence.crashes}
        self._uncaught = {uncaught.pid: uncaught for uncaught in evidence.uncaught}
        self._exits = {left.pid: left for left in evidence.exits}

    def uncaught(self, process: Process) -> Uncaught | None:
        """The exception that ended it, by its own word; one after which it went on, at a prompt, is none."""
        left, told = self.exit(process), self._uncaught.get(process.pid)
        if process.ending is None or process.ending.exit_code == 0 or (left is not None and left.uncaught is None):
            return None
        if told is None and left is not None and left.uncaught is not None:  # it had no descriptor left to tell with
            return Uncaught(left.pid, left.at_s, left.uncaught)
        return told

    def exit(self, process: Process) -> Exit | None:
        """Its call of exit(), if that is what ended it."""
        left, ending = self._exits.get(process.pid), process.ending
        return left if left is not None and ending is not None and ending.exit_code == left.exit_code else None

    def fell_s(self, process: Process) -> float:
        """When it failed: it may have been looked at, or have torn down for minutes, before it was gone."""
        uncaught = self.uncaught(process)
        told = uncaught.at_s if uncaught else process.ended_s or 0.0
        return self._crashed_s.get(process.pid, told)

    def before(self, process: Process) -> list[Process]:
        """The processes below it that had failed when it failed, the first one first.

        An end that was only noticed, as that by SIGKILL is, counts from when the process was last seen alive: on a
        loaded machine its parent may have failed of it before we were there to notice.
        """
        fell_s = self.fell_s(process)
        failed = [other for other in self.failed_below(process) if self._lived_s(other) <= fell_s]
        return sorted(failed, key=self.fell_s)

    def _lived_s(self, process: Process) -> float:
        """Until when it surely had not failed."""
        if process.alive_s is None or process.pid in self._crashed_s or self.uncaught(process):
            return self.fell_s(process)
        return min(process.alive_s, self.fell_s(process))

    def failed_below(self, process: Process) -> list[Process]:
        return [other for other in self.evidence.processes if has_failed(other) and self._is_below(other, process)]

    def was_told_to_leave(self, process: Process) -> bool:
        """Another process of the command, as a launcher does with the other ranks, sent the signal that ended it."""
        signame = process.ending.signame if process.ending else None
        others = self._by_pid.keys() - {process.pid}
        return any(
            kill.pid == process.pid and kill.signame == signame and kill.sender_pid in others
            for kill in self.evidence.kills
        )

    def timed_out(self, process: Process, other: Process) -> bool:
        """timeout(1) leaves with a status of its own when it has sent its signal."""
        if "timeout" not in _names(process) or process.ending is None or process.ending.exit_code != _TIMED_OUT:
            return False
        return other.ending is not None and other.ending.signo is not None

    def went_on_after(self, process: Process, parent: Process) -> bool:
        """The parent started another process after it had fallen."""
        fell_s = self.fell_s(process)
        return any(other.ppid == parent.pid and other.first_seen_s > fell_s for other in self.evidence.processes)

    def failed_ranks(self) -> list[Process]:
        """The first one first."""
        return sorted(filter(has_failed, self.ranks()), key=self.fell_s)

    def ranks(self) -> list[Process]:
        """The last start of each rank."""
        last = {
            process.rank: process
            for process in sorted(self.evidence.processes, key=lambda process: process.first_seen_s)
            if process.rank is not None and process is not self.main and self._starts_rank(process)
        }
        return list(last.values())

    def _starts_rank(self, process: Process) -> bool:
        """What a rank starts itself inherits the variable that says which rank it is."""
        parent = self._by_pid.get(process.ppid)
        return parent is None or parent.rank != process.rank

    def _is_below(self, process: Process, ancestor: Process) -> bool:
        """An orphan has come to harness: it is below the command, whoever started it."""
        seen: set[int] = set()
        while process.ppid in self._by_pid and process.pid not in seen:
            seen.add(process.pid)
            process = self._by_pid[process.ppid]
            if process is ancestor:
                return True
        return ancestor is self.main and process is not ancestor


def main_process(evidence: Evidence) -> Process | None:
    return next((process for process in evidence.processes if process.pid == evidence.pid), None)


def has_failed(process: Process) -> bool:
    return process.ending is not None and process.ending.exit_code != 0


def is_wrapper(process: Process | None) -> bool:
    if process is None:
        return False
    return bool(_names(process) & _WRAPPERS)


def _names(process: Process) -> set[str]:
    return {PurePath(process.executable or "").name, PurePath(process.argv[0]).name if process.argv else ""}


def passes_on(code: int | None, ending: Ending) -> bool:
    """Whether an exit status is a child's signal, as a shell writes it (139) or as subprocess does (-11, so 245)."""
    return ending.signo is not None and code in (ending.shell_code, -ending.signo & 0xFF)
