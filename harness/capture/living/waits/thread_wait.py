"""What one thread waits for: the system call it stands in and the file, peer, child or lock word this is about. Linux.

Reads /proc/PID/task/TID/{syscall,wchan} and where the arguments point; stops nothing. Finds nobody guilty, and knows
nothing of Python: locks.py does. A thread on CPU has no wait.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import select
import stat
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from harness.capture.files.images import read_maps
from harness.capture.living.waits.descriptors import Direction, describe_all, name_process, name_state, read_fdinfo
from harness.capture.machine.syscalls import CALLS, LINE
from harness.errors import Unreadable
from harness.evidence.living.look import Wait

_PROC = Path("/proc")
_MOST_POLLED = 64
_MOST_NAMED = 4
_LONGEST_PATH = 4096
_AT_FDCWD = -100
_TIMER_ABSTIME = 1
_FUTEX_PRIVATE = 0x80
_SETLKW = {7, 38}  # F_SETLKW, F_OFD_SETLKW


class Call(NamedTuple):
    """A system call as it stands; `arguments` as the kernel has them, unsigned."""

    pid: int
    name: str
    arguments: tuple[int, ...]
    proc: Path

    def signed(self, index: int) -> int:
        """An int argument: the upper half of its register means nothing."""
        return struct.unpack("<i", struct.pack("<I", self.arguments[index] & 0xFFFFFFFF))[0]  # type: ignore[no-any-return]

    def read(self, address: int, size: int) -> bytes:
        """As much as there is; nothing when it may not be read."""
        try:
            memory = os.open(self.proc / str(self.pid) / "mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.pread(memory, size, address)
        except (OSError, OverflowError):
            return b""
        finally:
            os.close(memory)


class About(NamedTuple):
    """What a call is about."""

    words: str | None = None
    fd: int | None = None
    peer_pids: tuple[int, ...] = ()
    until_s: float | None = None
    alone: bool = False
    named: bool = False


def read_wait(pid: int, tid: int, proc: Path = _PROC) -> Wait | None:
    """Null: on CPU, or gone. `syscall` null: not in one, which `target` says, or it may not be seen: then no target."""
    task = proc / str(pid) / "task" / str(tid)
    wchan = _read_wchan(task)
    try:
        words = _read_line(task)
    except PermissionError:
        return Wait(None, wchan=wchan)
    except (OSError, ValueError):
        return Wait(None, wchan=wchan) if wchan else None
    if words[0] == "running":
        return None
    if words[0] == "-1":
        return Wait(None, target="in no system call: stopped, or waiting for memory", wchan=wchan)
    return _read_call(pid, int(words[0]), tuple(int(word, 16) for word in words[1:7]), wchan, proc)


def read_call(pid: int, tid: int, proc: Path = _PROC) -> tuple[str, tuple[int, ...]] | None:
    """The system call a thread sleeps in, and its arguments. Null: on CPU, gone, not known, or not to be seen."""
    try:
        words = _read_line(proc / str(pid) / "task" / str(tid))
    except (OSError, ValueError):
        return None
    known = CALLS.get(os.uname().machine, {}).get(int(words[0])) if words[0].isdigit() else None
    return (known[0], tuple(int(word, 16) for word in words[1:7])) if known else None


def _read_line(task: Path) -> list[str]:
    """Unreadable: it is no such line, or not whole."""
    text = (task / "syscall").read_text().strip()
    if not LINE.fullmatch(text):
        raise Unreadable(f"no system call: {text[:80]!r}")
    return text.split()


def read_place(pid: int, tid: int, proc: Path = _PROC) -> str | None:
    """Where a sleeping thread stands: its stack and code pointer. Null: on CPU, gone, or not to be seen."""
    try:
        words = _read_line(proc / str(pid) / "task" / str(tid))
    except (OSError, ValueError):
        return None
    return " ".join(words[-2:]) if len(words) > 2 else None


def _read_wchan(task: Path) -> str | None:
    try:
        name = (task / "wchan").read_text(errors="replace").strip().partition(".")[0]  # without the compiler's mark
    except OSError:
        return None
    return None if name in ("", "0") else name


def _read_call(pid: int, number: int, arguments: tuple[int, ...], wchan: str | None, proc: Path) -> Wait:
    known = CALLS.get(os.uname().machine, {}).get(number) if _is_64_bit(pid, proc) else None
    if known is None:
        return Wait(f"system call {number}", tuple(map(hex, arguments)), wchan=wchan)
    name, count = known
    call = Call(pid, name, arguments[:count], proc)
    describe = _DESCRIBE.get(name)
    about = About() if describe is None else describe(call)
    given = tuple(map(hex, call.arguments))
    return Wait(
        name, given, about.fd, about.words, about.peer_pids, wchan, about.until_s, about.alone, named=about.named
    )


def _is_64_bit(pid: int, proc: Path) -> bool:
    """The numbers of a 32-bit program are others."""
    try:
        with (proc / str(pid) / "exe").open("rb") as file:
            return file.read(5) != b"\x7fELF\x01"
    except OSError:
        return True


def _read_from(call: Call) -> About:
    return _about_fd(call, "read", "reads from")


def _write_to(call: Call) -> About:
    return _about_fd(call, "write", "writes to")


def _use(call: Call) -> About:
    return _about_fd(call, None, {"ioctl": "ioctl on"}.get(call.name, f"{call.name} of"))


def _about_fd(call: Call, direction: Direction, verb: str) -> About:
    fd = call.signed(0)
    (leads,) = describe_all(call.pid, {fd: direction}, call.proc)
    return About(f"{verb} {leads.words}", fd, leads.peer_pids, alone=leads.alone, named=leads.named)


def _accept(call: Call) -> About:
    return _about_fd(call, "read", "accepts connections:")


def _connect(call: Call) -> About:
    fd = call.signed(0)
    address = _parse_address(call.read(call.arguments[1], min(call.arguments[2], 128)))
    (leads,) = describe_all(call.pid, {fd: None}, call.proc)
    return About(f"connects to {address or 'somewhere'}: {leads.words}", fd, leads.peer_pids)


def _parse_address(data: bytes) -> str | None:
    """A struct sockaddr; man 7 ip, ipv6, unix."""
    family = int.from_bytes(data[:2], "little")
    if family == 2 and len(data) >= 8:
        return f"{ipaddress.IPv4Address(data[4:8])}:{int.from_bytes(data[2:4], 'big')}"
    if family == 10 and len(data) >= 24:
        return f"[{ipaddress.IPv6Address(data[8:24])}]:{int.from_bytes(data[2:4], 'big')}"
    if family == 1:
        return data[2:].split(b"\0")[0].decode(errors="replace") or "@" + data[3:].decode(errors="replace")
    return None


def list_awaited(call: Call) -> dict[int, Direction] | None:
    """The descriptors that a poll, select or epoll waits for. Null: they could not be read."""
    if call.name in ("poll", "ppoll"):
        rows = call.read(call.arguments[0], 8 * min(call.arguments[1], _MOST_POLLED))
        if call.arguments[1] and len(rows) < 8:
            return None
        polled = struct.iter_unpack("<iHH", rows[: len(rows) // 8 * 8])
        return {fd: _direction(events) for fd, events, _ in polled if fd >= 0}
    return _list_selected(call) if call.name in ("select", "pselect6") else _list_watched(call)


def _poll(call: Call) -> About:
    fds = list_awaited(call)
    return About("waits for descriptors that could not be read") if fds is None else _about_many(call, fds)


def _list_selected(call: Call) -> dict[int, Direction]:
    """The kernel writes the sets only when it returns."""
    size = min(call.signed(0) + 7, 1024) // 8
    sets = [call.read(address, size) if address else b"" for address in call.arguments[1:4]]
    reading, writing, failing = (_list_bits(bits) for bits in sets)
    both: dict[int, Direction] = {**dict.fromkeys(failing), **dict.fromkeys(writing, "write")}
    return {**both, **dict.fromkeys(reading, "read")}


def _list_bits(bits: bytes) -> list[int]:
    return [8 * byte + bit for byte, value in enumerate(bits) for bit in range(8) if value >> bit & 1]


def _list_watched(call: Call) -> dict[int, Direction]:
    """A line is "tfd: 8 events: 19 data: …"; man 5 proc_pid_fdinfo."""
    rows = [line.split() for line in read_fdinfo(call.pid, call.signed(0), call.proc) if line.startswith("tfd:")]
    return {int(row[1]): _direction(int(row[3], 16)) for row in rows}


def _epoll(call: Call) -> About:
    fd, watched = call.signed(0), _list_watched(call)
    if not watched:
        return About("waits for nothing: no descriptor is watched", fd)
    return _about_many(call, watched, own=False)._replace(fd=fd)


def _direction(events: int) -> Direction:
    return "read" if events & select.POLLIN else "write" if events & select.POLLOUT else None


def _about_many(call: Call, fds: dict[int, Direction], *, own: bool = True) -> About:
    """Without `own` those are left out that lead back to the process: a loop has a socket to wake itself."""
    if not fds:
        return About("waits for no descriptor: a sleep")
    leads = describe_all(call.pid, dict(list(fds.items())[:_MOST_NAMED]), call.proc)
    words = [f"fd {fd}: {one.words}" for fd, one in zip(fds, leads, strict=False) if own or not one.is_own]
    if not words and len(fds) == len(leads):
        return About("waits for nothing from outside: only what wakes it from within is watched")
    if len(fds) > _MOST_NAMED:
        words.append(f"and {len(fds) - _MOST_NAMED} more")
    peers = tuple(dict.fromkeys(pid for one in leads for pid in one.peer_pids))
    fd, named = next(iter(fds)) if len(fds) == 1 else None, any(one.named for one in leads)
    return About(f"waits for {'; '.join(words)}", fd, peers, named=named)


def _open(call: Call) -> About:
    at, where = (0, _AT_FDCWD) if call.name == "open" else (1, call.signed(0))
    path = call.read(call.arguments[at], _LONGEST_PATH).partition(b"\0")[0].decode(errors="replace")
    if not path:
        return About("opens a file whose name could not be read")
    if not path.startswith("/"):
        link = "cwd" if where == _AT_FDCWD else f"fd/{where}"
        with contextlib.suppress(OSError):
            path = os.path.normpath((call.proc / str(call.pid) / link).readlink() / path)
    flags = call.arguments[at + 1] if call.name != "openat2" else 0
    return _about_fifo(call, path, flags & os.O_ACCMODE) if _is_fifo(call, path) else About(f"opens {path}")


def _is_fifo(call: Call, path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(f"{call.proc / str(call.pid)}/root{path}").st_mode)  # noqa: PTH116
    except OSError:
        return False


def _about_fifo(call: Call, path: str, mode: int) -> About:
    """open of a FIFO waits for somebody to open its other end; man 7 fifo."""
    verb, other = ("reading", "writing") if mode == os.O_RDONLY else ("writing", "reading")
    return About(f"opens the FIFO {path} for {verb}; nobody has opened it for {other}", alone=True, named=True)


def _lock_file(call: Call) -> About:
    if call.name == "fcntl" and call.signed(1) not in _SETLKW:
        return _use(call)
    fd = call.signed(0)
    (leads,) = describe_all(call.pid, {fd: None}, call.proc)
    holders = _read_lock_holders(call)
    known = [pid for pid in holders if pid > 0]
    held = f", held by {' and '.join(name_process(pid, call.proc) for pid in known)}" if known else ""
    return About(f"waits for the lock of {leads.words}{held}", fd, tuple(known))


def _read_lock_holders(call: Call) -> list[int]:
    """The row before "->" with the same number is the lock that ours waits for; man 5 proc_locks."""
    kinds = {"FLOCK"} if call.name == "flock" else {"POSIX", "OFDLCK"}
    holders: dict[str, list[str]] = {}
    try:
        rows = [row.split() for row in (call.proc / "locks").read_text().splitlines()]
    except OSError:
        return []
    for row in rows:
        if row[1] != "->":
            holders[row[0]] = row
        elif row[2] in kinds and row[5] == str(call.pid) and row[0] in holders:
            return [int(holders[row[0]][4])]
    return []


def _wait_for_child(call: Call) -> About:
    pid = _find_awaited(call)
    children = [pid] if pid else _list_children(call)
    if not children:
        return About("waits for a child, and has none")
    words = [name_state(child, call.proc) for child in children[:_MOST_NAMED]]
    more = f" and {len(children) - _MOST_NAMED} more" if len(children) > _MOST_NAMED else ""
    which = "child" if pid else "any child:"
    return About(f"waits for {which} {', '.join(words)}{more}", None, tuple(children))


def _find_awaited(call: Call) -> int | None:
    if call.name == "wait4":
        return call.signed(0) if call.signed(0) > 0 else None
    kind, number = call.signed(0), call.signed(1)
    if kind == 3:  # P_PIDFD
        rows = [line for line in read_fdinfo(call.pid, number, call.proc) if line.startswith("Pid:")]
        return int(rows[0].split()[1]) if rows else None
    return number if kind == 1 else None


def _list_children(call: Call) -> list[int]:
    found: list[int] = []
    for task in (call.proc / str(call.pid) / "task").glob("[0-9]*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return sorted(found)


def _futex(call: Call) -> About:
    address = call.arguments[0]
    word = call.read(address, 4)
    value = f", value {int.from_bytes(word, 'little'):#x}" if len(word) == 4 else ""
    if call.name != "futex":
        return About(f"lock word {address:#x}{value}")
    shared = "" if call.arguments[1] & _FUTEX_PRIVATE else _describe_shared(call, address)
    return About(f"lock word {address:#x}{value}{shared}{', with a timeout' if call.arguments[3] else ''}")


def _describe_shared(call: Call, address: int) -> str:
    """A semaphore of multiprocessing is in a file of /dev/shm, removed as soon as it is made."""
    with contextlib.suppress(OSError):
        for row in read_maps(call.pid, call.proc):
            if row.start <= address < row.end and row.permissions[3:4] == "s":
                return f", shared with other processes in {row.path}"
    return ""


def _futex_waitv(call: Call) -> About:
    """An array of struct futex_waitv: value, address, flags."""
    count = min(call.arguments[1], 8)
    rows = call.read(call.arguments[0], 24 * count)
    words = [f"{address:#x}" for _, address, _, _ in struct.iter_unpack("<QQII", rows[: len(rows) // 24 * 24])]
    return About(f"lock words {', '.join(words)}" if words else None)


def _sleep(call: Call) -> About:
    at = 2 if call.name == "clock_nanosleep" else 0
    data = call.read(call.arguments[at], 16)
    if len(data) < 16:
        return About("sleeps")
    seconds, nanoseconds = struct.unpack("<qq", data)
    length_s = seconds + nanoseconds / 1e9
    if not at or not call.arguments[1] & _TIMER_ABSTIME:
        return About(f"sleeps for {length_s:.3g} s")
    if call.signed(0) not in (time.CLOCK_MONOTONIC, time.CLOCK_REALTIME):
        return About("sleeps")
    left_s = max(0.0, length_s - time.clock_gettime(call.signed(0)))
    return About(f"sleeps, {left_s:.0f} s are left", until_s=length_s)


def _signal(call: Call) -> About:
    return About("waits for a signal")


def _ipc(call: Call) -> About:
    kind = "semaphore set" if call.name.startswith("sem") else "message queue"
    return About(f"System V {kind} {call.signed(0)}; see ipcs")


_DESCRIBE: dict[str, Callable[[Call], About]] = {
    **dict.fromkeys(("read", "readv", "pread64", "preadv", "recvfrom", "recvmsg", "recvmmsg", "splice"), _read_from),
    **dict.fromkeys(("write", "writev", "pwrite64", "pwritev", "sendto", "sendmsg", "sendmmsg", "sendfile"), _write_to),
    **dict.fromkeys(("ioctl", "fsync", "fdatasync", "sync_file_range", "close", "fstat", "getdents64"), _use),
    **dict.fromkeys(("mq_timedsend", "mq_timedreceive", "io_uring_enter"), _use),
    **dict.fromkeys(("accept", "accept4"), _accept),
    "connect": _connect,
    **dict.fromkeys(("poll", "ppoll", "select", "pselect6"), _poll),
    **dict.fromkeys(("epoll_wait", "epoll_pwait", "epoll_pwait2"), _epoll),
    **dict.fromkeys(("open", "openat", "openat2"), _open),
    **dict.fromkeys(("flock", "fcntl"), _lock_file),
    **dict.fromkeys(("wait4", "waitid"), _wait_for_child),
    **dict.fromkeys(("futex", "futex_wait"), _futex),
    "futex_waitv": _futex_waitv,
    **dict.fromkeys(("nanosleep", "clock_nanosleep"), _sleep),
    **dict.fromkeys(("pause", "rt_sigtimedwait", "rt_sigsuspend"), _signal),
    **dict.fromkeys(("semop", "semtimedop", "msgrcv", "msgsnd"), _ipc),
}
