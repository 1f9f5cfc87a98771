"""Which socket is at the other end of a Unix socket: /proc/net/unix does not say, the kernel's sock_diag does. Linux.

One netlink question, without any right; it answers for our own network namespace only. man 7 sock_diag.
"""

from __future__ import annotations

import socket
import struct

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_UDIAG_SHOW_PEER = 4
_UNIX_DIAG_PEER = 2
_ALL_STATES = 0xFFFFFFFF
_NO_COOKIE = 0xFFFFFFFF
_TIMEOUT_S = 0.1
_HEAD = struct.Struct("<IHHII")  # length, type, flags, sequence, port
_ATTRIBUTES_AT = _HEAD.size + 16  # after struct unix_diag_msg


def find_unix_peer(inode: int) -> int | None:
    """The inode of the other end; null when there is none, or nobody tells."""
    body = struct.pack("<BBHIIIII", socket.AF_UNIX, 0, 0, _ALL_STATES, inode, _UDIAG_SHOW_PEER, _NO_COOKIE, _NO_COOKIE)
    request = _HEAD.pack(_HEAD.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + body
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as asked:
            asked.settimeout(_TIMEOUT_S)
            asked.send(request)
            return _read_peer(asked.recv(4096))
    except OSError:
        return None


def _read_peer(answer: bytes) -> int | None:
    if len(answer) < _ATTRIBUTES_AT or _HEAD.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    at = _ATTRIBUTES_AT
    while at + 8 <= len(answer):
        size, kind, value = struct.unpack_from("<HHI", answer, at)
        if kind == _UNIX_DIAG_PEER:
            return int(value)
        at += max(size + 3 & ~3, 4)
    return None
