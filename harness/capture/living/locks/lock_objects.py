"""The lock objects of a CPython process that its threads wait for: where they are, and who owns them. Linux.

Stops nothing, and says nothing where the bounds of the search end. What a lock object has behind its head is, up to
3.12, the address of a semaphore, which is the futex that a waiting thread stands in. Later ones have the lock itself
there, one byte; a waiting thread then stands in a parking lot, where the address of that byte lies before its futex.
(In 3.13 it depends on the release which of the two a Lock has.) The object's type is called `_thread.lock` or
`_thread.RLock`. An RLock has its owner's ident in the next word, a Lock has none. join() waits for a lock that the
thread's state refers to (3.13 and later: in a parking lot, for an event beside an ident).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from pathlib import Path
from typing import Literal, NamedTuple

from harness.capture.living.locks.lock_holders import Holders
from harness.capture.proc import read_switches
from harness.capture.stacks.cpython.objects import FREE_THREADED_HEAD_BYTES, HEAD_BYTES, Objects
from harness.capture.stacks.cpython.process_memory import Memory
from harness.capture.stacks.cpython.thread_idents import Threads

_PROC = Path("/proc")
_RLOCK_OWNER, _RLOCK_COUNT = 8, 16  # from the lock on
_WEAK_OBJECT = 16
_PARKED_AT = -8  # in struct wait_entry of Python/parking_lot.c, the address stands before the semaphore
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
    Only of threads that slept while all was read: what is told of two of them was true at the same time.
    """
    if not awaited:
        return {}
    before = {tid: _count_switches(pid, tid, proc) for tid in awaited}
    try:
        memory = Memory(pid, proc)
    except OSError:
        return {}
    try:
        search = _Search(memory, Threads(memory, pid, proc))
        found = {tid: lock for tid, word in awaited.items() if (lock := search.find(word, tid in joining))}
        owned = {lock.address: lock for lock in found.values()}
        for address, lock in owned.items():
            if lock.kind == "lock":
                waiting = {tid for tid in acquiring if tid not in found or found[tid].address == address}
                owned[address] = search.add_holder(lock, waiting)
        slept = {tid for tid, count in before.items() if count and count == _count_switches(pid, tid, proc)}
        return {tid: owned[lock.address] for tid, lock in found.items() if tid in slept}
    finally:
        memory.close()


def _count_switches(pid: int, tid: int, proc: Path) -> list[str] | None:
    """How often it went to sleep; null where it does not sleep, or is gone."""
    try:
        state, switches = read_switches(pid, tid, proc)
    except OSError:
        return None
    return switches if state == "S" else None


class _Search:
    def __init__(self, memory: Memory, threads: Threads) -> None:
        self._memory, self._threads, self._objects = memory, threads, Objects(memory)
        self._holders = Holders(memory, self._objects, threads)

    def find(self, word: int, joined: bool) -> LockObject | None:
        parked = self._memory.word(word + _PARKED_AT)
        for place in itertools.chain([parked], self._memory.find(word)):
            if found := self._read_lock(place, is_parked=place == parked):
                return self._find_joined(found) if joined else found
        return LockObject("join", parked, *self._threads.find_near(parked)) if joined and parked else None

    def _read_lock(self, place: int, is_parked: bool) -> LockObject | None:
        """The lock object that has this place behind its head."""
        for self._objects.head in (FREE_THREADED_HEAD_BYTES, HEAD_BYTES):
            address = place - self._objects.head
            kind = _KINDS.get(self._objects.name_type(address))
            if kind == "rlock" and self._is_held(place, is_parked):
                return LockObject(kind, address, *self._threads.look_up(self._memory.word(place + _RLOCK_OWNER)))
            if kind:
                return LockObject(kind, address)
        return None

    def _is_held(self, place: int, is_parked: bool) -> bool:
        """The byte has a bit for it; a semaphore has not, but there the count is not 0."""
        return bool(self._memory.word(place) & 1 if is_parked else self._memory.word(place + _RLOCK_COUNT))

    def add_holder(self, lock: LockObject, waiting: Collection[int]) -> LockObject:
        holder = self._holders.find(lock.address, waiting)
        return lock if holder is None else lock._replace(owner_tid=holder, owner_alive=True)

    def _find_joined(self, lock: LockObject) -> LockObject:
        """The thread's state has a weak reference to the lock, next to its ident; Python/pystate.c, on_delete_data."""
        for place in self._memory.find(lock.address):
            reference = place - _WEAK_OBJECT
            if not self._objects.name_type(reference).startswith(b"weakref"):
                continue
            for at in self._memory.find(reference):
                tid, alive = self._threads.find_near(at)
                if tid is not None:
                    return LockObject("join", lock.address, tid, alive)
        return lock._replace(kind="join")
