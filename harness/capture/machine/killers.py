"""Who sent the signals that ended the command's processes: from the dying process itself, and from the kernel.

The kernel tells root only, and only of pids of the initial namespace; elsewhere that is a reason, kept in `why_not`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Container
from pathlib import Path
from typing import Any, NamedTuple

from harness import native
from harness.capture.proc import read_argv, read_file, read_status_fields

_WATCHED = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU)
_MOST_EVENTS = 256
_MOST_KILLS = 1000
_SI_TIMER = -2  # has the number of the timer where others have their sender
_INITIAL_NAMESPACE = "pid:[4026531836]"  # include/linux/proc_ns.h
FROM_LINK = "crash link"
FROM_KERNEL = "kernel, signal:signal_generate"


class Sent(NamedTuple):
    """`sender_pid` null: the kernel's own. `sender` null: gone before its command line could be read."""

    signo: int
    pid: int
    at_s: float
    sender_pid: int | None
    sender_uid: int | None
    sender: str | None
    source: str


class Killers:
    """All that was told of signals to the command's processes; `fd` becomes readable when the kernel has news."""

    def __init__(self, started_ns: int, members: Container[int] = frozenset()) -> None:
        self.members = members
        self._started_ns = started_ns
        self.sent: list[Sent] = []
        self.fd: int | None = None
        self.why_not: str | None = None
        self.is_for_root = False
        self.lost = 0

    def open(self) -> None:
        self.why_not = _why_not()
        if self.why_not is None:
            ffi, lib = native.load()
            fd = lib.harness_kills_open(ffi.new("int32_t[]", _WATCHED), len(_WATCHED))
            if fd >= 0:
                self.fd = fd
            else:
                self.is_for_root = -fd in (errno.EPERM, errno.EACCES)
                self.why_not = _explain(-fd)

    def close(self) -> None:
        if self.fd is not None:
            native.load()[1].harness_kills_close(self.fd)
            self.fd = None

    def read(self) -> None:
        """Takes the news; the sender's command line is read at once, because a `kill` lives for a millisecond."""
        if self.fd is None:
            return
        ffi, lib = native.load()
        kills = ffi.new(f"struct harness_kill[{_MOST_EVENTS}]")
        count = _MOST_EVENTS
        while count == _MOST_EVENTS:  # the kernel tells only once that there is something to read
            lost = ffi.new("uint64_t *")
            count = lib.harness_kills_read(kills, _MOST_EVENTS, lost)
            self.lost += lost[0]
            for kill in kills[0:count]:
                self._note_kill(kill)

    def _note_kill(self, kill: Any) -> None:
        pid = self._find_member(kill.target)
        if pid is not None:
            sender = kill.sender if kill.code <= 0 and kill.code != _SI_TIMER else None
            uid, command = _describe(sender) if sender else (None, None)
            at_s = (kill.time_ns - self._started_ns) / 1e9
            self._note(Sent(kill.signo, pid, at_s, sender, uid, command, FROM_KERNEL))

    def note_leave(self, leave: Any, at_s: float) -> None:
        """What a process said before it left."""
        ffi, _ = native.load()
        words = bytes(ffi.buffer(leave.command, min(leave.length, len(leave.command))))
        by_kernel = leave.code > 0 or leave.code == _SI_TIMER
        sender = leave.sender if not by_kernel else None
        command = _join(words) or (_describe(leave.sender)[1] if sender else None)
        uid = None if by_kernel else leave.uid
        self._note(Sent(leave.signo, leave.pid, at_s, sender, uid, command, FROM_LINK))

    def _note(self, sent: Sent) -> None:
        if len(self.sent) < _MOST_KILLS:
            self.sent.append(sent)

    def _find_member(self, target: int) -> int | None:
        """The signal may have been sent to a thread, or to a child that nobody has told us of yet."""
        if target in self.members:
            return target
        with contextlib.suppress(OSError, ValueError, LookupError):
            fields = read_status_fields(target)
            pid, parent = int(fields["Tgid"][0]), int(fields["PPid"][0])
            return pid if pid in self.members or parent in self.members else None
        return None


def _why_not() -> str | None:
    if sys.platform != "linux":
        return "this system does not tell"
    if not native.LIBRARY.exists():
        return "harness's own library is not on this host"
    if not is_initial_namespace():
        return "the kernel names senders by pids that are not visible in this container"
    return None


def is_initial_namespace(namespace: Path = Path("/proc/self/ns/pid")) -> bool:
    """Where it cannot be told, as on systems without namespaces, it is."""
    try:
        return str(namespace.readlink()) == _INITIAL_NAMESPACE
    except OSError:
        return True


def _explain(number: int) -> str:
    if number in (errno.EPERM, errno.EACCES):
        return "the kernel tells this to root only"
    return f"the kernel's tracepoint cannot be used here: {os.strerror(number)}"


def _describe(pid: int) -> tuple[int | None, str | None]:
    """(uid, command line or name) of a sender."""
    uid = None
    with contextlib.suppress(OSError):
        uid = Path(f"/proc/{pid}").stat().st_uid
        if argv := read_argv(pid):
            return uid, " ".join(argv)
        return uid, read_file(f"/proc/{pid}/comm").decode(errors="replace").strip() or None
    return uid, None


def _join(command_line: bytes) -> str | None:
    return " ".join(command_line.rstrip(b"\0").decode("utf-8", "replace").split("\0")) or None
