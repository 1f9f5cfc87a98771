"""Which thread of a CPython process is inside a `with` of a lock, by what lies on the stacks of its frames. Linux.

Up to 3.13 a `with` keeps the lock's __exit__, bound to it, on that stack; from 3.14 the function and, beside it, the
lock. A bound method is gone when the `with` is over; the other two words stay where they were until the next value
takes their place, so that they count only below the end of that frame's stack.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

from harness.capture.stacks.cpython.objects import Objects
from harness.capture.stacks.cpython.process_memory import Memory
from harness.capture.stacks.cpython.thread_idents import Threads

_PAGE = os.sysconf("SC_PAGESIZE")
_METHOD_DEFINITION, _METHOD_SELF = 0, 8  # of PyCFunctionObject, after its head
_DESCRIPTOR_DEFINITION = 24  # of PyMethodDescrObject, after its head
_STACK_POINTER = 64  # in struct _PyInterpreterFrame of 3.14 and 3.15
_TAGS = (0, 1)  # of a word on the stack of a frame: whether it counts as a reference
_TAG_BITS = 3
_CHUNK, _LARGEST_CHUNK = 16 << 10, 256 << 10  # DATA_STACK_CHUNK_SIZE of Python/pystate.c; deep calls get larger ones
_FRAME_BACK, _STATE_IDENT = 24, 176  # of PyFrameObject (and PyThreadState.frame) and PyThreadState in 3.9 and 3.10
_LARGEST_FRAME, _MOST_FRAMES = 4096, 16


class Holders:
    def __init__(self, memory: Memory, objects: Objects, threads: Threads) -> None:
        self._memory, self._objects, self._threads = memory, objects, threads

    def find(self, lock: int, waiting: Collection[int]) -> int | None:
        """The only one that is inside. Who waits to enter has the same words on its stack and is in `waiting`."""
        holders = {*self._list_bound(lock), *self._list_beside(lock)} - {None, *waiting}
        return holders.pop() if len(holders) == 1 else None

    def _list_bound(self, lock: int) -> Iterator[int | None]:
        for place in self._memory.find(lock):
            method = place - _METHOD_SELF - self._objects.head
            if self._is_exit(method, b"builtin_function_or_method", _METHOD_DEFINITION):
                for slot in self._memory.find(method):
                    yield self._find_thread(slot)

    def _list_beside(self, lock: int) -> Iterator[int | None]:
        for tag in _TAGS:
            for slot in self._memory.find(lock | tag):
                function = self._memory.word(slot - 8) & ~_TAG_BITS
                if self._is_exit(function, b"method_descriptor", _DESCRIPTOR_DEFINITION) and self._is_in_use(slot):
                    yield self._find_thread(slot)

    def _is_exit(self, address: int, kind: bytes, definition: int) -> bool:
        if self._objects.name_type(address) != kind:
            return False
        name = self._memory.word(self._memory.word(address + self._objects.head + definition))
        return self._memory.read(name, 9) == b"__exit__\0"

    def _is_in_use(self, slot: int) -> bool:
        """A frame before this word says that its stack ends behind it, and somebody leads to that frame."""
        start, end = self._find_chunk(slot) or (slot, slot)
        start = max(start, slot - _LARGEST_FRAME)
        data = self._memory.read(start, slot - start)
        for at in range(len(data) - 8, _STACK_POINTER, -8):
            if slot < int.from_bytes(data[at : at + 8], "little") <= end:
                return any(True for _ in self._memory.find(start + at - _STACK_POINTER))
        return False

    def _find_thread(self, slot: int) -> int | None:
        """Whose frame this word is in. From 3.11 frames lie in chunks that the thread's state leads to."""
        chunk = self._find_chunk(slot)
        return self._find_thread_of_chunk(*chunk, slot) if chunk else self._find_thread_of_frame(slot)

    def _find_chunk(self, slot: int) -> tuple[int, int] | None:
        for page in range(slot // _PAGE * _PAGE, slot - _LARGEST_CHUNK, -_PAGE):
            size = self._memory.word(page + 8)
            if size % _CHUNK == 0 and slot < page + size <= page + _LARGEST_CHUNK:
                return page, page + size
        return None

    def _find_thread_of_chunk(self, chunk: int, end: int, slot: int) -> int | None:
        for place in self._memory.find(chunk):
            top, limit = self._memory.word(place + 8), self._memory.word(place + 16)
            if limit == end and slot < top <= end:
                return self._threads.find_near(place)[0]
        return None

    def _find_thread_of_frame(self, slot: int) -> int | None:
        """Up to 3.10 a frame is an object: the thread's state leads to the innermost, each to the one outside it."""
        name = self._objects.name_type
        frame = next((at for at in range(slot, slot - _LARGEST_FRAME, -8) if name(at) == b"frame"), None)
        for _ in range(_MOST_FRAMES):
            if frame is None:
                return None
            inner = None
            for place in self._memory.find(frame):
                tid, _ = self._threads.look_up(self._memory.word(place - _FRAME_BACK + _STATE_IDENT))
                if tid is not None:
                    return tid
                if name(place - _FRAME_BACK) == b"frame":
                    inner = place - _FRAME_BACK
                    break
            frame = inner
        return None
