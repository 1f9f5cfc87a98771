"""What /proc says of processes and memory, read in one place: stat, status, cmdline, meminfo, and exit statuses. Linux.

A supervisor loads it at its start: no pathlib, no msgspec, and no pattern compiled before it is used. `proc` and `root`
can be made-up trees.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import struct
import sys
import time
from typing import TYPE_CHECKING, NamedTuple, cast

from harness.errors import Unreadable
from harness.evidence.text.numbers import find_number, read_number

if TYPE_CHECKING:
    from harness.evidence.living.look import ThreadState

    Folder = str | os.PathLike[str]

_PROC = "/proc"
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# In the fields after the command name; man 5 proc_pid_stat, and PF_EXITING, PF_KTHREAD of linux/sched.h.
FIELD_FLAGS, FIELD_COLLECTED_FAULTS, FIELD_UTIME, FIELD_STIME, FIELD_START = 6, 8, 11, 12, 19
FIELD_ARG_START, FIELD_ARG_END, FIELD_EXIT_CODE = 45, 46, 49
_EXITING, _KERNEL_THREAD = 0x4, 0x200000
_STATES = "RSDTtZXI"  # of what is no thread of the kernel's own
# Up to its pages: the state and 21 numbers, none so long that it would have more than 64 bits when it is in bytes.
_STAT = r" ?([A-Za-z])(?: -?[0-9]{1,18}){20} [0-9]{1,14}\b"
_SIGSTOP_PENDING = 1 << (signal.SIGSTOP - 1)
# linux/pidfd.h: struct pidfd_info up to exit_code (64 bytes, Linux 6.13), _IOWR(0xFF, 11, …); exit info since 6.15.
_PIDFD_GET_INFO = 3 << 30 | 64 << 16 | 0xFF << 8 | 11
_PIDFD_INFO_EXIT = 1 << 3
_EXIT_CODE_OFFSET = 60


class Stat(NamedTuple):
    """man 5 proc_pid_stat."""

    name: str
    state: ThreadState
    ppid: int
    flags: int
    children_faults: int
    major_faults: int
    cpu_s: float
    kernel_s: float  # of it
    threads: int
    started_s: float  # after boot
    rss_bytes: int

    @property
    def is_kernel(self) -> bool:
        return bool(self.flags & _KERNEL_THREAD)


class Status(NamedTuple):
    """man 5 proc_pid_status."""

    pid: int  # of the process that a thread belongs to
    tracer_pid: int | None
    swap_bytes: int | None
    inner_pid: int  # in its own namespace
    rss_bytes: int | None
    peak_rss_bytes: int | None
    threads_total: int | None


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


def _read_text(path: str) -> str:
    return read_file(path).decode(errors="replace")


def _task(pid: int | str, tid: int | None, proc: Folder) -> str:
    return f"{os.fspath(proc)}/{pid}" if tid is None else f"{os.fspath(proc)}/{pid}/task/{tid}"


def read_stat(pid: int, tid: int | None = None, proc: Folder = _PROC) -> Stat:
    """OSError: there is no such process or thread. Unreadable: it is no such line, or not whole."""
    return parse_stat(_read_text(f"{_task(pid, tid, proc)}/stat"))


def parse_stat(text: str) -> Stat:
    """Unreadable: it is no such line, or not whole."""
    name, _, rest = text.partition("(")[2].rpartition(")")
    found = re.match(_STAT, rest)
    if found is None:
        raise Unreadable("it is no line of /proc/PID/stat")
    state, words = found[1] if found[1] in _STATES else "S", found[0].split()
    user, kernel = int(words[FIELD_UTIME]), int(words[FIELD_STIME])
    return Stat(
        name=name,
        state=cast("ThreadState", state),
        ppid=int(words[1]),
        flags=int(words[FIELD_FLAGS]),
        children_faults=int(words[FIELD_COLLECTED_FAULTS]),
        major_faults=int(words[9]),
        cpu_s=(user + kernel) * _TICK_S,
        kernel_s=kernel * _TICK_S,
        threads=int(words[17]),
        started_s=int(words[FIELD_START]) * _TICK_S,
        rss_bytes=int(words[21]) * _PAGE_BYTES,
    )


def read_fields(pid: int | str, tid: int | None = None, proc: Folder = _PROC) -> list[str]:
    """Of its stat, those after the command name, which may itself hold spaces and parentheses. Nothing is checked."""
    return _read_text(f"{_task(pid, tid, proc)}/stat").rpartition(")")[2].split()


def read_state(pid: int, tid: int | None = None, proc: Folder = _PROC) -> str | None:
    """One letter. Null: it is gone."""
    try:
        return read_fields(pid, tid, proc)[0]
    except (OSError, IndexError):
        return None


def is_running(pid: int, tid: int) -> bool:
    try:
        return read_stat(pid, tid).state == "R"
    except OSError:
        return False


def age_s(started_s: float) -> float:
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)


def read_status(pid: int, proc: Folder = _PROC) -> Status:
    """Unreadable: a number in it is none."""
    fields = read_status_fields(pid, proc=proc)

    def find(name: str, otherwise: int, which: int = 0) -> int:
        return read_number(words[which]) if (words := fields.get(name)) else otherwise

    def find_kib(name: str) -> int | None:
        return find(name, 0) * 1024 if fields.get(name) else None

    return Status(
        pid=find("Tgid", pid),
        tracer_pid=find("TracerPid", 0) or None,
        swap_bytes=find_kib("VmSwap"),
        inner_pid=find("NSpid", pid, -1),
        rss_bytes=find_kib("VmRSS"),
        peak_rss_bytes=find_kib("VmHWM"),
        threads_total=find("Threads", 0) if fields.get("Threads") else None,
    )


def read_status_fields(pid: int | str, tid: int | None = None, proc: Folder = _PROC) -> dict[str, list[str]]:
    """The words of each line by its name."""
    lines = _read_text(f"{_task(pid, tid, proc)}/status").split("\n")
    return {name: words.split() for name, _, words in (line.partition(":") for line in lines)}


def read_switches(pid: int, tid: int, proc: Folder = _PROC) -> tuple[str | None, list[str]]:
    """Its state, one letter, and how often it has left the CPU: by itself, and not."""
    fields = read_status_fields(pid, tid, proc)
    counts = (fields.get(name, [])[:1] for name in ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"))
    return next(iter(fields.get("State", [])), None), [word for words in counts for word in words]


def list_tids(pid: int, proc: Folder = _PROC) -> list[int]:
    """None where it is gone."""
    try:
        return sorted(map(int, os.listdir(f"{_task(pid, None, proc)}/task")))  # noqa: PTH208 (only names are wanted)
    except OSError:
        return []


def outer_tids(pid: int) -> dict[int, int]:
    """Thread ids as we see them, by those in the target's own pid namespace (a container), which py-spy gives.

    Empty where they are the same.
    """
    tids = {}
    for tid in list_tids(pid):
        with contextlib.suppress(OSError, ValueError):  # that thread has ended
            outer, *inner = map(int, read_status_fields(pid, tid).get("NSpid", []))
            if inner:
                tids[inner[-1]] = outer
    return tids


def is_stopping(pid: int) -> bool:
    """Stopped by a signal, or about to be."""
    for tid in list_tids(pid):
        with contextlib.suppress(OSError, ValueError):  # that thread has ended
            if _says_stopping(_read_text(f"{_task(pid, tid, _PROC)}/status")):
                return True
    return False


def _says_stopping(status: str) -> bool:
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    pending = int(fields.get("SigPnd", "0"), 16) | int(fields.get("ShdPnd", "0"), 16)
    return fields.get("State", "").startswith("T") or bool(pending & _SIGSTOP_PENDING)


def read_argv(pid: int) -> tuple[str, ...]:
    """Empty when it cannot be read: gone, a zombie, or a kernel thread."""
    try:
        command_line = read_file(f"/proc/{pid}/cmdline")
    except OSError:
        return ()
    return tuple(os.fsdecode(command_line.rstrip(b"\0")).split("\0")) if command_line else ()


def read_meminfo(root: Folder) -> dict[str, int]:
    """In bytes; man 5 proc_meminfo. Empty where there is none."""
    try:
        lines = _read_text(f"{os.fspath(root).rstrip('/')}/proc/meminfo").split("\n")
    except OSError:
        return {}
    fields = [(line.partition(":")[0], line.partition(":")[2].split()) for line in lines]
    return {
        name: number * (1024 if words[1:] == ["kB"] else 1)
        for name, words in fields
        if words and (number := find_number(words[0])) is not None
    }


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
            processes.append((pid, int(read_fields(pid)[1])))
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


def open_pidfd(pid: int) -> int | None:
    """Null: it is gone, or this system has none."""
    with contextlib.suppress(OSError, AttributeError):
        return os.pidfd_open(pid)
    return None


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
            fields = read_fields(pid)
            if fields[0] == "Z" and shows_status(pid):
                return int(fields[FIELD_EXIT_CODE]), f"exit status in /proc/{pid}/stat"
    return None, ""


def _read_exit_info(pidfd: int) -> int | None:
    info = bytearray(64)
    struct.pack_into("Q", info, 0, _PIDFD_INFO_EXIT)
    with contextlib.suppress(OSError):
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
        if struct.unpack_from("Q", info, 0)[0] & _PIDFD_INFO_EXIT:
            return int(struct.unpack_from("i", info, _EXIT_CODE_OFFSET)[0])
    return None


def shows_status(pid: int) -> bool:
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
        fields = read_fields(pid)
        status = int(fields[FIELD_EXIT_CODE])
        falls = int(fields[FIELD_FLAGS]) & _EXITING and fields[0] not in "tT"  # a stop stands in the same field
        if falls and status & 0x7F and b"CoreDumping:\t1" not in read_file(f"/proc/{pid}/status"):
            return status  # before 5.16 a thread exits while the core is being written
    return None
