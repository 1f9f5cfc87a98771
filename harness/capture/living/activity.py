"""What a process does at first sight, in one word that /proc bears out. Linux.

Two moments, some tenths of a second apart, and the system calls that its threads stand in. Stops nothing; what cannot
be seen (another user's process) is `idle`: it uses no CPU, which is all that is known then.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from harness.capture.living.identity import is_frozen
from harness.capture.living.waits.rest import list_handled
from harness.capture.living.waits.thread_wait import Call, list_awaited, read_call
from harness.capture.proc import Stat, list_tids, read_stat

_PROC = Path("/proc")
_BUSY_CORES = 0.05
_WORDS = {"t": "traced", "Z": "zombie", "X": "zombie"}
_MOST_THREADS = 512
_PRIVATE = 0x80  # FUTEX_PRIVATE_FLAG: only a thread of the same process can wake it
_SETLKW = (7, 38)  # F_SETLKW, F_OFD_SETLKW
_LISTENS = 0x10000  # SO_ACCEPTCON, as /proc/net/unix has it
_TCP_LISTEN = "0A"
_POLLS = frozenset({"poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"})
_VFORK = ("vfork", "kernel_clone", "_do_fork", "do_fork")
# What the main thread sleeps in.
_ASLEEP = {
    **dict.fromkeys(("nanosleep", "clock_nanosleep"), "sleeping"),
    **dict.fromkeys(("pause", "rt_sigtimedwait", "rt_sigsuspend"), "waits for a signal"),
    **dict.fromkeys(("accept", "accept4"), "listening"),
    **dict.fromkeys(("wait4", "waitid"), "waits for a child"),
    **dict.fromkeys(("read", "readv", "recvfrom", "recvmsg"), "reading"),
    **dict.fromkeys(("write", "writev", "sendto", "sendmsg"), "writing"),
    **dict.fromkeys(("open", "openat", "openat2"), "opening a file"),
    "flock": "waits for a file lock",
}


class Moment(NamedTuple):
    """`turns`: how often its main thread has been on a CPU; null where the kernel does not count."""

    stat: Stat
    turns: int | None

    @classmethod
    def of(cls, pid: int) -> Moment:
        """OSError: it has gone."""
        turns = None
        with contextlib.suppress(OSError, ValueError, IndexError):
            turns = int((_PROC / str(pid) / "schedstat").read_text().split()[2])
        return cls(read_stat(pid), turns)


def name_activity(pid: int, before: Moment, now: Moment, cores: float) -> str:
    state = now.stat.state
    if state in _WORDS:
        return _WORDS[state]
    if state == "T":
        return "stopped" if before.stat.state == "T" and before.turns == now.turns else "stopped now and then"
    if cores >= _BUSY_CORES:
        return "busy"
    return _name_deep_sleep(pid) if state == "D" else name_sleep(pid)


def _name_deep_sleep(pid: int) -> str:
    """A parent in vfork sleeps like that until its child runs its program; so does whoever is frozen (version 1)."""
    if is_frozen(pid):
        return "frozen"
    with contextlib.suppress(OSError):
        if any(word in (_PROC / str(pid) / "wchan").read_text() for word in _VFORK):
            return "waits for a child"
    return "waits for the disk"


def name_sleep(pid: int, proc: Path = _PROC) -> str:
    """Locked: every thread waits for one of the same process, none with a timeout, and no handler of a signal could
    let one go on: nothing is left that could wake any of them."""
    calls = {tid: _read(pid, tid, proc) for tid in list_tids(pid, proc)[:_MOST_THREADS]}
    if calls and all(call is not None and _waits_for_own(call) for call in calls.values()):
        return "locked" if list_handled(pid, proc) == () else "idle"
    main = calls.get(pid)
    if main is None:
        return "idle"
    if main.name in _POLLS:
        return "listening" if _takes_connections(main, proc) else "polling"
    if main.name == "fcntl" and main.signed(1) in _SETLKW:
        return "waits for a file lock"
    return _ASLEEP.get(main.name, "idle")


def _read(pid: int, tid: int, proc: Path) -> Call | None:
    seen = read_call(pid, tid, proc)
    return Call(pid, seen[0], seen[1], proc) if seen else None


def _waits_for_own(call: Call) -> bool:
    """man 2 futex; futex_wait(address, value, mask, flags, timeout, clock)."""
    if call.name == "futex":
        return bool(call.arguments[1] & _PRIVATE) and not call.arguments[3]
    return call.name == "futex_wait" and bool(call.arguments[3] & _PRIVATE) and not call.arguments[4]


def _takes_connections(call: Call, proc: Path) -> bool:
    awaited = list_awaited(call)
    links = {_read_link(call.pid, fd, proc) for fd in awaited or ()}
    sockets = {link[8:-1] for link in links if link.startswith("socket:[")}
    return bool(sockets) and not sockets.isdisjoint(_list_listening(call.pid, proc))


def _read_link(pid: int, fd: int, proc: Path) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"{proc}/{pid}/fd/{fd}")  # noqa: PTH115
    return ""


def _list_listening(pid: int, proc: Path) -> Iterable[str]:
    """Inodes, in the network namespace of the process; man 5 proc_net."""
    for name in ("tcp", "tcp6"):
        rows = _read_rows(proc / str(pid) / "net" / name)
        yield from (row[9] for row in rows if len(row) > 9 and row[3] == _TCP_LISTEN)
    rows = _read_rows(proc / str(pid) / "net" / "unix")
    yield from (row[6] for row in rows if len(row) > 6 and int(row[3], 16) & _LISTENS)


def _read_rows(path: Path) -> list[list[str]]:
    try:
        return [line.split() for line in path.read_text(errors="replace").splitlines()[1:]]
    except OSError:
        return []
