"""Which processes of a command failed, and in which order: from births, ends, and what each told when it left.

The order of things as they were seen, never how long they took. What a failure means for the command: see `culprit`.
"""

from __future__ import annotations

import signal
from pathlib import PurePath

from harness.diagnose.death.crash.si_codes import is_sent
from harness.evidence.run import Ending, Evidence, Exit, Process, Uncaught, name_signal

CRASH_SIGNALS = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP", "SIGSYS"})
_WRAPPERS = frozenset(
    (
        *("sh", "bash", "dash", "zsh", "ksh", "ash", "busybox", "xargs", "time", "sudo", "doas", "setsid"),
        *("timeout", "env", "nice", "nohup", "stdbuf"),
    )
)

_TIMED_OUT = 124  # man 1 timeout
_NOBODY_READS = 128 + signal.SIGPIPE


class Failures:
    """The failed processes of one run."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.main = main_process(evidence)
        self._by_pid = {process.pid: process for process in evidence.processes}
        self._crashed_s = {crash.pid: crash.at_s for crash in evidence.crashes}
        self._sent = {
            (crash.pid, name_signal(crash.signo), crash.sender_pid)
            for crash in evidence.crashes
            if is_sent(crash.si_code)
        } | {(kill.pid, kill.signame, kill.sender_pid) for kill in evidence.kills}
        self._killed_s = {kill.pid: kill.at_s for kill in reversed(evidence.kills) if kill.signame == "SIGKILL"}
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
        return self._told_s(process) or process.ended_s or 0.0

    def _told_s(self, process: Process) -> float | None:
        """By itself, as it happened; of SIGKILL, by the kernel."""
        if (crashed_s := self._crashed_s.get(process.pid)) is not None:
            return crashed_s
        told = self.uncaught(process) or self.exit(process)
        if told is not None:
            return told.at_s
        return self._killed_s.get(process.pid) if process.ending and process.ending.signame == "SIGKILL" else None

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
        if process.alive_s is None or self._told_s(process) is not None:
            return self.fell_s(process)
        return min(process.alive_s, self.fell_s(process))

    def left_meanwhile(self, process: Process) -> list[Process]:
        """Those below it that chose a status, and were gone only after it had failed: who waits for one learns that
        it leaves before it is gone."""
        fell_s, ended_s = self.fell_s(process), process.ended_s or 0.0
        failed = [other for other in self.failed_below(process) if other.ending and other.ending.signo is None]
        failed = [other for other in failed if self._told_s(other) is None]
        return [other for other in failed if fell_s < (other.ended_s or 0.0) <= ended_s]

    def failed_below(self, process: Process) -> list[Process]:
        return [other for other in self.below(process) if has_failed(other)]

    def below(self, process: Process) -> list[Process]:
        return [other for other in self.evidence.processes if self._is_below(other, process)]

    def was_told_to_leave(self, process: Process) -> bool:
        """Another process of the command, as a launcher does with the other ranks, sent the signal that ended it."""
        return bool(self._senders(process, process.ending) & (self._by_pid.keys() - {process.pid}))

    def is_sender_unknown(self, process: Process) -> bool:
        """A signal that somebody sends ended it, and nobody tells who: its own parent may have."""
        signame = process.ending.signame if process.ending else None
        return signame not in CRASH_SIGNALS | {None} and not self._senders(process, process.ending)

    def was_signalled(self, process: Process, ending: Ending) -> bool:
        """Somebody else sent that signal to it, whatever it did then."""
        return bool(self._senders(process, ending) - {process.pid})

    def raised_itself(self, process: Process) -> bool:
        """It sent itself the signal that ended it, as far as anybody tells of one."""
        senders = self._senders(process, process.ending)
        return not senders or process.pid in senders

    def _senders(self, process: Process, ending: Ending | None) -> set[int | None]:
        signame = ending.signame if ending else None
        return {sender for pid, name, sender in self._sent if (pid, name) == (process.pid, signame)}

    def timed_out(self, process: Process, other: Process) -> bool:
        """timeout(1) leaves with a status of its own when it has sent its signal."""
        if "timeout" not in names_of(process) or process.ending is None or process.ending.exit_code != _TIMED_OUT:
            return False
        return other.ending is not None and other.ending.signo is not None

    def went_on_after(self, process: Process, parent: Process) -> bool:
        """The parent started another process after it had fallen."""
        return self._has_born_after(self.fell_s(process), parent)

    def started_after(self, process: Process, parent: Process) -> bool:
        """The parent started another process after it was gone."""
        return process.ended_s is not None and self._has_born_after(process.ended_s, parent)

    def _has_born_after(self, at_s: float, parent: Process) -> bool:
        return any(other.ppid == parent.pid and other.first_seen_s > at_s for other in self.evidence.processes)

    def lived_until_s(self, process: Process) -> float | None:
        """Until when it was surely there: what was printed later, another one may have printed."""
        if process.alive_s is None or process.ended_s is None:
            return process.ended_s
        left, uncaught = self._exits.get(process.pid), self._uncaught.get(process.pid)
        signs = [process.alive_s, self._crashed_s.get(process.pid, 0.0)]
        signs += [sign.at_s for sign in (left, uncaught) if sign is not None]
        return min(max(signs), process.ended_s)

    def has_lost_reader(self, process: Process) -> bool:
        """What it wrote to was gone: in a pipeline the next one, which had ended before."""
        if process.ending is None:
            return False
        uncaught = self.uncaught(process)
        if uncaught is not None:
            return uncaught.type == "BrokenPipeError"
        return process.ending.shell_code == _NOBODY_READS

    def is_awaited_by(self, process: Process, ancestor: Process) -> bool:
        """It is a child of that one; between them are at most such whose own end could not be seen."""
        seen: set[int] = set()
        pid = process.ppid
        while pid != ancestor.pid and pid not in seen:
            seen.add(pid)
            between = self._by_pid.get(pid)
            if between is None or between.ending is not None:
                return between is None and ancestor is self.main
            pid = between.ppid
        return pid == ancestor.pid

    def failed_ranks(self) -> list[Process]:
        """The first one first."""
        return sorted(filter(has_failed, self.ranks()), key=self.fell_s)

    def overlap(self, process: Process, other: Process) -> bool:
        """There was a moment at which both lived."""
        first, second = sorted((process, other), key=lambda one: one.first_seen_s)
        return first.ended_s is None or second.first_seen_s <= first.ended_s

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
    return bool(names_of(process) & _WRAPPERS)


def names_of(process: Process) -> set[str]:
    return {PurePath(process.executable or "").name, PurePath(process.argv[0]).name if process.argv else ""}
