"""The supervisor's end of the crash link: a socket on which a dying process reports, and waits to be looked at.

Takes the record and the snapshot, lets go, and decides nothing. See native/crash.c for the other end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from harness import native
from harness.capture.peer import read_peer
from harness.evidence.case import make_private_directory

if TYPE_CHECKING:
    from harness.capture.snapshot import Snapshot

# A dying process waits 3 s for us (native/link.h); the look itself must be over before.
HELD_DEADLINE_S = 2.5
_RECEIVE_DEADLINE_S = 0.5
# In a storm only the first crashes get a full look; each of the others would have to wait for them.
FULL_LOOKS = 4
_BACKLOG = 512


class Report(NamedTuple):
    """One crash as it was reported, and what was seen while the process stood still."""

    record: Any
    at_s: float
    held_s: float
    seen: Snapshot
    complete: bool = False


class Link:
    """Listens in a private directory; the path is what the command gets as HARNESS_LINK."""

    def __init__(self) -> None:
        self.directory = make_private_directory("harness")
        self.path = self.directory / "link"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.bind(str(self.path))
        self._socket.listen(_BACKLOG)
        self.reports: list[Report] = []
        self._ready = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> tuple[socket.socket, int] | None:
        """A connection and the pid behind it; strangers are turned away."""
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return None
        peer = read_peer(connection)
        if peer is None or peer.uid != os.getuid():
            connection.close()
            return None
        return connection, peer.pid

    def take_report(self, connection: socket.socket, pid: int, at_s: float) -> list[int]:
        """Receives, looks, lets go. The process goes on when the connection closes, whatever happened here.

        Returns the pids of the tools that were used: they are ours, not the command's.
        """
        from harness.capture.snapshot import look_while_held

        begun = time.monotonic()
        with contextlib.closing(connection):
            record = _receive(connection)
            if record is None or record.pid != pid:
                return []
            seen = look_while_held(pid, HELD_DEADLINE_S if len(self.reports) < FULL_LOOKS else 0.0, tid=record.tid)
        self.reports.append(Report(record, at_s, time.monotonic() - begun, seen))
        return [tool.pid for tool in seen.tools if tool.pid is not None]

    def work(self) -> bool:
        """Uses idle time; whether there is more to do.

        What a look needs is loaded before the first crash, so that the process stands still for less long; owners and
        names are found while the kernel takes the dead process down, which needs 0.1 s for each GiB.
        """
        from harness.capture import snapshot

        if not self._ready:
            self._ready = True
            with contextlib.suppress(ImportError):  # the look itself says what is missing
                import pystack.engine  # noqa: F401
            return True
        for index, report in enumerate(self.reports):
            if not report.complete:
                self.reports[index] = report._replace(seen=snapshot.complete(report.seen), complete=True)
                return True
        return False

    def close(self) -> None:
        self._socket.close()
        with contextlib.suppress(OSError):  # it may be gone already
            for entry in self.directory.iterdir():
                entry.unlink()
            self.directory.rmdir()


def _receive(connection: socket.socket) -> Any | None:
    """The record, or null for anything else: what is on the other end is not trusted to be our library."""
    ffi, lib = native.load()
    size = ffi.sizeof("struct harness_crash")
    connection.settimeout(_RECEIVE_DEADLINE_S)
    data = bytearray()
    try:
        while len(data) < size and (part := connection.recv(size - len(data))):
            data += part
    except OSError:
        return None
    if len(data) != size:
        return None
    record = ffi.new("struct harness_crash *")
    ffi.memmove(record, bytes(data), size)
    return record if (record.abi, record.size) == (lib.HARNESS_ABI, size) else None
