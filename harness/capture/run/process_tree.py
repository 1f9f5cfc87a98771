"""The processes below the supervisor, and how each of them ended, whoever collected its status.

Three sources: the kernel's own news (native/processes.c) where it gives any, scans of the process table, and pidfds as
long as descriptors last; without one a process is asked after at each scan, and `unseen_ends` tells what that missed.
Without the first, a process that lives shorter than the time between two scans can be missed; what its parent printed
about it is then the only trace. Elsewhere than on Linux psutil lists the tree and only own children have a status.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
import time

from harness.capture.machine.refusals import open_pidfd

# linux/pidfd.h: struct pidfd_info up to exit_code (64 bytes, Linux 6.13), _IOWR(0xFF, 11, …); exit info since 6.15.
_PIDFD_GET_INFO = 3 << 30 | 64 << 16 | 0xFF << 8 | 11
_PIDFD_INFO_EXIT = 1 << 3
_EXIT_CODE_OFFSET = 60
# In the fields after the command name; man 5 proc_pid_stat, and PF_EXITING of linux/sched.h.
_STAT_FLAGS, _STAT_START, _STAT_EXIT_CODE = 6, 19, 49
_EXITING = 0x4
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
            fields = _read_stat(pid)
            if fields[_STAT_START] == member.born and fields[0] != "Z":
                return
            ended_here = fields[_STAT_START] == member.born and _shows_status(pid)
            status = int(fields[_STAT_EXIT_CODE]) if ended_here else None
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


def read_exit(pidfd: int, pid: int) -> tuple[int | None, str]:
    """The wait status of a process that is not our child, and where it was read.

    Until its parent has collected it, it stands in /proc; from then on the pidfd has it. The parent may do so between
    our two looks, so the first is made once more.
    """
    for _ in range(2):
        status = _read_exit_info(pidfd)
        if status is not None:
            return status, "exit status from the kernel (pidfd)"
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = _read_stat(pid)
            if fields[0] == "Z" and _shows_status(pid):
                return int(fields[_STAT_EXIT_CODE]), f"exit status in /proc/{pid}/stat"
    return None, ""


def _read_born(pid: int) -> str | None:
    with contextlib.suppress(OSError, IndexError):
        return _read_stat(pid)[_STAT_START]
    return None


def _shows_status(pid: int) -> bool:
    """To those who may not trace a process the kernel shows 0 in place of its status (man 5 proc_pid_stat)."""
    try:
        os.readlink(f"/proc/{pid}/ns/user")  # noqa: PTH115 (only whether it is allowed)
    except PermissionError:
        return False
    return True


def read_fate(pid: int) -> int | None:
    """The wait status of a process that the kernel is taking down for a signal; null while nothing is decided.

    It is final before the memory is freed (do_exit in kernel/exit.c), which takes 0.1 s for each GiB.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = _read_stat(pid)
        status = int(fields[_STAT_EXIT_CODE])
        falls = int(fields[_STAT_FLAGS]) & _EXITING and fields[0] not in "tT"  # a stop stands in the same field
        if falls and status & 0x7F and b"CoreDumping:\t1" not in read_file(f"/proc/{pid}/status"):
            return status  # before 5.16 a thread exits while the core is being written
    return None


def _read_exit_info(pidfd: int) -> int | None:
    info = bytearray(64)
    struct.pack_into("Q", info, 0, _PIDFD_INFO_EXIT)
    with contextlib.suppress(OSError):
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
        if struct.unpack_from("Q", info, 0)[0] & _PIDFD_INFO_EXIT:
            return int(struct.unpack_from("i", info, _EXIT_CODE_OFFSET)[0])
    return None


def list_new_processes(seen: set[int]) -> list[tuple[int, int]]:
    """(pid, ppid) of processes not in `seen`, which is brought up to date. Parents come before their children."""
    if sys.platform != "linux":
        import psutil

        return [(child.pid, child.ppid()) for child in psutil.Process().children(recursive=True)]
    pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208 (three times faster)
    new = pids - seen
    seen.clear()
    seen.update(pids)
    processes = []
    for pid in sorted(new):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it ended while we looked
            processes.append((pid, int(_read_stat(pid)[1])))
    return _parents_first(processes)


def _parents_first(processes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pids wrap around, so a child can have a smaller one than its parent."""
    parent_of = dict(processes)

    def depth(pid: int) -> int:
        count = 0
        while pid in parent_of and count < len(parent_of):
            pid, count = parent_of[pid], count + 1
        return count

    return sorted(processes, key=lambda process: depth(process[0]))


def _read_stat(pid: int) -> list[str]:
    """The fields after the command name, which may itself hold spaces and parentheses."""
    return read_file(f"/proc/{pid}/stat").decode(errors="replace").rpartition(")")[2].split()


def read_file(path: str) -> bytes:
    """Without pathlib, which is most of what following a script with thousands of short processes would cost."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(fd, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)


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


def read_argv(pid: int) -> tuple[str, ...]:
    """Empty when it cannot be read: gone, a zombie, or a kernel thread."""
    try:
        command_line = read_file(f"/proc/{pid}/cmdline")
    except OSError:
        return ()
    return _split_nul(command_line) if command_line else ()


def _split_nul(data: bytes) -> tuple[str, ...]:
    return tuple(os.fsdecode(data.rstrip(b"\0")).split("\0"))


def _describe_elsewhere(member: Member) -> None:
    import psutil

    with contextlib.suppress(psutil.Error):
        process = psutil.Process(member.pid)
        member.name = process.name()
        member.argv = tuple(process.cmdline())
        member.executable = process.exe()
        member.rank = process.environ().get("RANK")
