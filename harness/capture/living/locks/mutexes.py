"""Which mutex of the C library a thread waits for, and which thread owns it. Linux, glibc.

glibc keeps the owner's thread id in the mutex, next to the lock word that a waiting thread sleeps at (pthread_mutex_t
in sysdeps/nptl/bits/struct_mutex.h; the first five words are the same on all 64-bit machines). Reads memory only. A
word that is no such mutex, and a lock without an owner (a semaphore, a condition, malloc's), give nothing.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Mapping
from pathlib import Path

from harness.capture.proc import outer_tids
from harness.evidence.living.look import HeldLock, Wait

_PROC = Path("/proc")
_MUTEX = struct.Struct("<IIiIi")  # lock, count, owner, users, kind
_COMMAND = 0x7F  # of a futex operation, without its flags
_WAIT, _LOCK_PI, _LOCK_PI2 = 0, 6, 13
_CONTENDED = 2
_OWNER_BITS = 0x3FFFFFFF
_LARGEST_KIND = 0x3FF


def find_mutexes(pid: int, waits: Mapping[int, Wait | None], proc: Path = _PROC) -> dict[int, HeldLock]:
    """By thread id. Only where the owner lives: else it may be anything."""
    asked = {tid: wait for tid, wait in waits.items() if wait is not None and _may_be_mutex(wait)}
    if not asked:
        return {}
    try:
        outer = outer_tids(pid)
        memory = os.open(proc / str(pid) / "mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        found = {tid: _read_owner(memory, wait) for tid, wait in asked.items()}
    finally:
        os.close(memory)
    owners = {tid: outer.get(owner, owner) for tid, owner in found.items() if owner}
    return {tid: _describe(asked[tid], owner) for tid, owner in owners.items() if owner in waits}


def _may_be_mutex(wait: Wait) -> bool:
    """Who waits for one says that it is contended, or leaves it to the kernel to inherit priorities."""
    if wait.syscall != "futex" or len(wait.arguments) < 3:
        return False
    command, value = int(wait.arguments[1], 16) & _COMMAND, int(wait.arguments[2], 16)
    return command in (_LOCK_PI, _LOCK_PI2) or (command == _WAIT and value == _CONTENDED)


def _read_owner(memory: int, wait: Wait) -> int | None:
    data = b""
    with contextlib.suppress(OSError, OverflowError):
        data = os.pread(memory, _MUTEX.size, int(wait.arguments[0], 16))
    if len(data) < _MUTEX.size:
        return None
    lock, _, owner, users, kind = _MUTEX.unpack(data)
    taken = lock == _CONTENDED or lock & _OWNER_BITS == owner
    return owner if taken and owner > 0 and users and 0 <= kind <= _LARGEST_KIND else None


def _describe(wait: Wait, owner: int) -> HeldLock:
    return HeldLock(
        expression="a mutex",
        file="",
        line=0,
        function="",
        waiting=True,
        address=wait.arguments[0],
        owner_tid=owner,
        kind="mutex",
        owner_alive=True,
    )
