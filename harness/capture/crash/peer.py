"""Which process stands behind a connection of the crash link, as the kernel says it; one reader per platform.

Does not judge whether that process belongs to the command.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from typing import NamedTuple

from harness import native

_UCRED = struct.Struct("iII")
# macOS: sys/un.h, and struct xucred of sys/ucred.h (version, uid, number of groups, groups).
_SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = 0, 1, 2
_XUCRED = struct.Struct("IIhxx16I")
_INT = struct.Struct("i")
_FIRST_BYTES_S = 0.5


class Peer(NamedTuple):
    pid: int
    uid: int


def read_peer(connection: socket.socket, platform: str = sys.platform) -> Peer | None:
    """Null: the other end is gone, or never said whom it speaks for."""
    try:
        return _read_darwin(connection) if platform == "darwin" else _read_linux(connection)
    except (OSError, struct.error):
        return None


def _read_linux(connection: socket.socket) -> Peer:
    pid, uid, _gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Peer(pid, uid)


def _read_darwin(connection: socket.socket) -> Peer:
    (pid,) = _INT.unpack(connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID, _INT.size))
    _, uid, *_groups = _XUCRED.unpack(connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size))
    return Peer(_read_pid_in_record(connection) if pid == os.getpid() else pid, uid)


def _read_pid_in_record(connection: socket.socket) -> int:
    """Our own thread speaks for the process that dies (native/mach.c); the record stays to be received."""
    ffi, _ = native.load()
    offset = ffi.offsetof("struct harness_crash", "pid")
    connection.settimeout(_FIRST_BYTES_S)
    first = connection.recv(offset + _INT.size, socket.MSG_PEEK | socket.MSG_WAITALL)
    (pid,) = _INT.unpack_from(first, offset)
    return int(pid)
