"""The lock objects of a CPython process that its threads wait for: where they are, and who owns them. Linux.

Stops nothing, and says nothing where the bounds of the search end. From 3.9 to 3.13 a lock object's third word
points at a semaphore, whose address is the futex that a waiting thread stands in: the object is where that word is and
the type is called `_thread.lock` or `_thread.RLock`. An RLock has its owner's ident in the next word, a Lock has none.
join() waits for a lock that the thread's state refers to (3.13: in a parking lot, for an event beside an ident).

An ident is the address of the C library's struct pthread, in which the kernel's thread id stands. At which offset is
learned from our own thread, and believed of a process with the same C library.
"""

from __future__ import annotations

import os
import re
import struct
import threading
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from harness.capture.alive.memory import Memory
from harness.capture.files.images import Row, read_maps

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGESIZE")
_OB_TYPE, _LOCK_WORD, _RLOCK_OWNER, _RLOCK_COUNT = 8, 16, 24, 32
_TP_NAME = 24
_WEAK_OBJECT = 16
_METHOD_DEFINITION, _METHOD_SELF = 16, 24
_CHUNK, _LARGEST_CHUNK = 16 << 10, 256 << 10  # DATA_STACK_CHUNK_SIZE of Python/pystate.c; deep calls get larger ones
_FRAME_BACK, _STATE_IDENT = 24, 176  # of PyFrameObject (and PyThreadState.frame) and PyThreadState in 3.9 and 3.10
_LARGEST_FRAME, _MOST_FRAMES = 4096, 16
_LARGEST_COUNT = 1 << 31
_PARKED_AT = -8  # in struct wait_entry of Python/parking_lot.c, the address stands before the semaphore
_NEAR = 256
_PTHREAD_BYTES = 2304
_C_LIBRARY = re.compile(r"/(?:libc[.-]|ld-musl|libpthread)[^/]*$")
_KINDS: dict[bytes, Literal["lock", "rlock"]] = {b"_thread.lock": "lock", b"_thread.RLock": "rlock"}


class LockObject(NamedTuple):
    """`owner_tid` null and `owner_alive` false: it is owned by a thread that is no more; null: not known."""

    kind: Literal["lock", "rlock", "join"]
    address: int
    owner_tid: int | None = None
    owner_alive: bool | None = None


def read_lock_objects(
    pid: int, awaited: dict[int, int], joining: Collection[int], acquiring: Collection[int], proc: Path = _PROC
) -> dict[int, LockObject]:
    """The lock behind the futex word of each thread of `awaited`, where one was found.

    `joining`: which threads are in a join(). `acquiring`: which wait for some lock, also those whose word is not known.
    """
    if not awaited:
        return {}
    try:
        memory = Memory(pid, proc)
    except OSError:
        return {}
    try:
        search = _Search(memory, Threads(memory, pid, proc))
        words = {word: tid in joining for tid, word in awaited.items()}
        found = {word: lock for word, joined in words.items() if (lock := search.find(word, joined))}
        for word, lock in found.items():
            if lock.kind == "lock":
                waiting = {tid for tid in acquiring if awaited.get(tid) in (word, None)}
                found[word] = search.add_holder(lock, waiting)
        return {tid: found[word] for tid, word in awaited.items() if word in found}
    finally:
        memory.close()


class _Search:
    def __init__(self, memory: Memory, threads: Threads) -> None:
        self._memory, self._threads = memory, threads
        self._type_names: dict[int, bytes] = {}

    def find(self, word: int, joined: bool) -> LockObject | None:
        for place in self._memory.find(word):
            if found := self._read_lock(place - _LOCK_WORD):
                return self._find_joined(found) if joined else found
        parked = self._memory.word(word + _PARKED_AT) if joined else 0
        return LockObject("join", parked, *self._threads.find_near(parked)) if parked else None

    def _read_lock(self, address: int) -> LockObject | None:
        kind = _KINDS.get(self._name_type(address))
        if kind == "rlock" and self._memory.word(address + _RLOCK_COUNT):
            return LockObject(kind, address, *self._threads.look_up(self._memory.word(address + _RLOCK_OWNER)))
        return LockObject(kind, address) if kind else None

    def _name_type(self, address: int) -> bytes:
        """Of the object there; of what is none, nothing. A freed object's count is a pointer."""
        head = self._memory.read(address, 16)
        if len(head) < 16 or not 0 < int.from_bytes(head[:8], "little") < _LARGEST_COUNT:
            return b""
        kind = int.from_bytes(head[_OB_TYPE:], "little")
        if kind not in self._type_names:
            name = self._memory.word(kind + _TP_NAME)
            self._type_names[kind] = self._memory.read(name, 32).partition(b"\0")[0] if name else b""
        return self._type_names[kind]

    def add_holder(self, lock: LockObject, waiting: Collection[int]) -> LockObject:
        """Who is inside a `with` of it: its __exit__, bound to it, lies on the stack of that thread's frames.

        Up to 3.11 on that of a thread still waiting to enter, too.
        """
        holders = {
            tid
            for place in self._memory.find(lock.address)
            if self._is_exit(place - _METHOD_SELF)
            for slot in self._memory.find(place - _METHOD_SELF)
            if (tid := self._find_thread(slot))
        }
        holders.difference_update(waiting)
        return lock._replace(owner_tid=holders.pop(), owner_alive=True) if len(holders) == 1 else lock

    def _is_exit(self, address: int) -> bool:
        if self._name_type(address) != b"builtin_function_or_method":
            return False
        name = self._memory.word(self._memory.word(address + _METHOD_DEFINITION))
        return self._memory.read(name, 9) == b"__exit__\0"

    def _find_thread(self, slot: int) -> int | None:
        """Whose frame this word is in. From 3.11 frames lie in chunks that the thread's state leads to."""
        for page in range(slot // _PAGE * _PAGE, slot - _LARGEST_CHUNK, -_PAGE):
            size = self._memory.word(page + 8)
            if size % _CHUNK == 0 and slot < page + size <= page + _LARGEST_CHUNK:
                return self._find_thread_of_chunk(page, page + size, slot)
        return self._find_thread_of_frame(slot)

    def _find_thread_of_chunk(self, chunk: int, end: int, slot: int) -> int | None:
        for place in self._memory.find(chunk):
            top, limit = self._memory.word(place + 8), self._memory.word(place + 16)
            if limit == end and slot < top <= end:
                return self._threads.find_near(place)[0]
        return None

    def _find_thread_of_frame(self, slot: int) -> int | None:
        """Up to 3.10 a frame is an object: the thread's state leads to the innermost, each to the one outside it."""
        frame = next((at for at in range(slot, slot - _LARGEST_FRAME, -8) if self._name_type(at) == b"frame"), None)
        for _ in range(_MOST_FRAMES):
            if frame is None:
                return None
            inner = None
            for place in self._memory.find(frame):
                tid, _ = self._threads.look_up(self._memory.word(place - _FRAME_BACK + _STATE_IDENT))
                if tid is not None:
                    return tid
                if self._name_type(place - _FRAME_BACK) == b"frame":
                    inner = place - _FRAME_BACK
                    break
            frame = inner
        return None

    def _find_joined(self, lock: LockObject) -> LockObject:
        """The thread's state has a weak reference to the lock, next to its ident; Python/pystate.c, on_delete_data."""
        for place in self._memory.find(lock.address):
            reference = place - _WEAK_OBJECT
            if not self._name_type(reference).startswith(b"weakref"):
                continue
            for at in self._memory.find(reference):
                tid, alive = self._threads.find_near(at)
                if tid is not None:
                    return LockObject("join", lock.address, tid, alive)
        return lock._replace(kind="join")


class Threads:
    """Which living thread an ident means."""

    def __init__(self, memory: Memory, pid: int, proc: Path) -> None:
        self._memory = memory
        self._tids = {int(task.name) for task in (proc / str(pid) / "task").iterdir()}
        self._offset = _learn_offset()
        self._same_library = bool(_list_c_libraries(memory.rows) & _our_c_libraries())

    def look_up(self, ident: int) -> tuple[int | None, bool | None]:
        """(tid, true), or (null, false) for a thread that has ended, or (null, null) when that cannot be told."""
        if self._offset is None or not ident:
            return None, None
        tid = int.from_bytes(self._memory.read(ident + self._offset, 4), "little")
        if tid in self._tids:
            return tid, True
        return None, False if self._same_library else None

    def find_near(self, address: int) -> tuple[int | None, bool | None]:
        """The ident that stands closest before this place."""
        data = self._memory.read(address // 8 * 8 - _NEAR, _NEAR)
        for (ident,) in reversed(list(struct.iter_unpack("<Q", data))):
            if ident > _LARGEST_COUNT and ident % 16 == 0 and self._memory.is_mapped(ident):
                tid, alive = self.look_up(ident)
                if tid is not None:
                    return tid, alive
        return None, None


@cache
def _learn_offset() -> int | None:
    """Where in struct pthread our own thread id is; musl and every glibc have their own place for it."""
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        try:
            data = os.pread(memory.fileno(), _PTHREAD_BYTES, threading.get_ident())
        except (OSError, OverflowError):
            return None
    tid = threading.get_native_id()
    found = [at for at in range(0, len(data) - 3, 4) if int.from_bytes(data[at : at + 4], "little") == tid]
    return found[0] if found else None


@cache
def _our_c_libraries() -> frozenset[tuple[str, int]]:
    return frozenset(_list_c_libraries(read_maps(os.getpid())))


def _list_c_libraries(rows: list[Row]) -> set[tuple[str, int]]:
    return {row.file for row in rows if _C_LIBRARY.search(row.path)}
