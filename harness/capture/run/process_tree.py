"""The processes below the supervisor, and how each of them ended, whoever collected its status.

Three sources: the kernel's own news (native/processes.c) where it gives any, scans of the process table, and pidfds as
long as descriptors last; without one a process is asked after at each scan, and `unseen_ends` tells what that missed.
Without the first, a process that lives shorter than the time between two scans can be missed; what its parent printed
about it is then the only trace. Elsewhere than on Linux psutil lists the tree and only own children have a status.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

from harness.capture.machine.refusals import open_pidfd
from harness.capture.proc import (
    FIELD_EXIT_CODE,
    FIELD_START,
    list_new_processes,
    read_argv,
    read_exit,
    read_fields,
    read_file,
    shows_status,
)

_YOUNG_S = 1.0
_MOST_MEMBERS = 4096


class Member:
    """A process of the tree while it is followed. Not a dataclass: importing that costs a tenth of our start."""

    def __init__(self, pid: int, ppid: int, first_seen_s: float) -> None:
        self.pid = pid
        self.ppid = ppid
        self.first_seen_s = first_seen_s
        self.name = ""
        self.pidfd: int | None = None
        self.born: str | None = None  # as the kernel counts; where there is no pidfd
        self.argv: tuple[str, ...] = ()
        self.executable: str | None = None
        self.cwd: str | None = None
        self.rank: str | None = None
        self.ended_s: float | None = None
        self.alive_s: float | None = None
        self.wait_status: int | None = None
        self.told_s: float | None = None
        self.told_status: int | None = None
        self.source = ""
        self.execs = 0


class Tree:
    """All descendants of this process that were ever seen, minus those in `not_ours` (the relays)."""

    def __init__(self, started_ns: int, not_ours: set[int]) -> None:
        self.members: dict[int, Member] = {}
        self.by_pidfd: dict[int, Member] = {}
        self.started_ns = started_ns
        self.not_ours = not_ours
        self._seen: set[int] = set()
        self._asked_after: set[int] = set()
        self.unseen_ends = 0

    def now_s(self) -> float:
        return (time.monotonic_ns() - self.started_ns) / 1e9

    def add(self, pid: int, ppid: int, like: Member | None = None) -> Member:
        member = self.members[pid] = Member(pid, ppid, self.now_s())
        member.pidfd = open_pidfd(pid)
        if member.pidfd is not None:
            self.by_pidfd[member.pidfd] = member
        elif sys.platform == "linux":
            member.born = _read_born(pid)
            self._asked_after.add(pid)
        if like is None:
            _describe(member)
        else:
            member.name, member.argv, member.executable, member.rank = like.name, like.argv, like.executable, like.rank
            member.cwd = like.cwd
        return member

    def hide(self, pid: int) -> None:
        """A process of our own, which is not part of the command's tree."""
        self.not_ours.add(pid)
        self.members.pop(pid, None)

    def scan(self) -> list[Member]:
        """Finds new members; returns them. Cost: one listing of the process table, one read per new process."""
        now_s = self.now_s()
        for member in self.members.values():
            if member.ended_s is None and now_s - member.first_seen_s < _YOUNG_S:
                _describe(member)  # it may have been between fork and exec
        new = list_new_processes(self._seen)
        for pid in list(self._asked_after):
            self._ask_after(pid)
        found = [self._note_new(pid, ppid) for pid, ppid in new]
        return [member for member in found if member is not None]

    def _ask_after(self, pid: int) -> None:
        """Of one without a pidfd: whether it has ended, and how, if its parent has not collected it yet."""
        member = self.members.get(pid)
        if member is None or member.ended_s is not None:
            self._asked_after.discard(pid)
            return
        try:
            fields = read_fields(pid)
            if fields[FIELD_START] == member.born and fields[0] != "Z":
                return
            ended_here = fields[FIELD_START] == member.born and shows_status(pid)
            status = int(fields[FIELD_EXIT_CODE]) if ended_here else None
        except (FileNotFoundError, ProcessLookupError):
            status = None
        self._asked_after.discard(pid)
        self.mark_ended(member, status, f"exit status in /proc/{pid}/stat")
        self.unseen_ends += member.wait_status is None

    def note_birth(self, pid: int, ppid: int, time_ns: int) -> Member | None:
        """The kernel told of a birth, and when: whoever had this pid before is gone."""
        known = self.members.get(pid)
        if known is not None and known.ended_s is not None:
            del self.members[pid]
        member = self._note_new(pid, ppid, like=self.members.get(ppid))
        if member is not None:
            member.first_seen_s = (time_ns - self.started_ns) / 1e9
        return member

    def note_exec(self, pid: int) -> None:
        """The kernel told that it runs another program now; if it is gone already, which one is not known."""
        if member := self.members.get(pid):
            member.execs += 1
            member.name, member.argv, member.executable = "", (), None
            _describe(member)

    def _note_new(self, pid: int, ppid: int, like: Member | None = None) -> Member | None:
        """A new member, if this process belongs to the tree and is not known yet. A fork is like its parent."""
        if pid in self.not_ours or pid in self.members or (ppid != os.getpid() and ppid not in self.members):
            return None
        return self.add(pid, ppid, like)

    def note_status(self, pid: int, wait_status: int, time_ns: int) -> None:
        """The kernel told how and when a first thread ended; others may live on, and then the pidfd knows."""
        member = self.members.get(pid)
        if member is None or member.wait_status is not None:
            return
        member.told_status, member.told_s = wait_status, (time_ns - self.started_ns) / 1e9
        if member.pidfd is None or member.ended_s is not None:  # it was gone before we could ask
            self.mark_ended(member, None, "")

    def mark_ended(self, member: Member, wait_status: int | None, source: str) -> None:
        member.ended_s = self.now_s() if member.told_s is None else member.told_s
        if wait_status is None and member.told_status is not None:
            wait_status, source = member.told_status, "exit status from the kernel (process connector)"
        if wait_status is not None:
            member.wait_status, member.source = wait_status, source
        if len(self.members) > _MOST_MEMBERS:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        """A script that starts a process each second for a week must not grow us; old ends explain nothing."""
        ended = [member for member in self.members.values() if member.ended_s is not None]
        for member in sorted(ended, key=lambda member: member.ended_s or 0.0)[: _MOST_MEMBERS // 2]:
            del self.members[member.pid]

    def note_exit(self, pidfd: int, asked_s: float) -> None:
        """The process behind this pidfd has ended; its own parent may or may not have collected it.

        `asked_s`: when all were asked the time before, and this one lived, if it had been born.
        """
        member = self.by_pidfd.pop(pidfd)
        member.alive_s = max(asked_s, member.first_seen_s)
        if member.wait_status is None:
            self.mark_ended(member, *read_exit(pidfd, member.pid))
        os.close(pidfd)


def _read_born(pid: int) -> str | None:
    with contextlib.suppress(OSError, IndexError):
        return read_fields(pid)[FIELD_START]
    return None


def _describe(member: Member) -> None:
    if sys.platform != "linux":
        _describe_elsewhere(member)
        return
    proc = f"/proc/{member.pid}"
    with contextlib.suppress(OSError):
        member.name = read_file(f"{proc}/comm").decode(errors="replace").strip()
        member.argv = read_argv(member.pid) or member.argv
        member.executable = os.readlink(f"{proc}/exe")  # noqa: PTH115 (see read_file)
        note_cwd(member)
        environment = b"\0" + read_file(f"{proc}/environ")
        at = environment.find(b"\0RANK=")
        if at != -1:
            member.rank = environment[at + len(b"\0RANK=") :].partition(b"\0")[0].decode(errors="replace")


def note_cwd(member: Member) -> None:
    """Where it works now: a core with a relative name goes there."""
    with contextlib.suppress(OSError):
        member.cwd = os.readlink(f"/proc/{member.pid}/cwd")  # noqa: PTH115 (see read_file)


def _describe_elsewhere(member: Member) -> None:
    import psutil

    with contextlib.suppress(psutil.Error):
        process = psutil.Process(member.pid)
        member.name = process.name()
        member.argv = tuple(process.cmdline())
        member.executable = process.exe()
        member.rank = process.environ().get("RANK")
