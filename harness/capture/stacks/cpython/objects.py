"""What kind of Python object is at an address of another process. Linux, CPython 3.9 to 3.15.

An object begins with its head, whose last word is its type. A free-threaded build has a longer head with two counts.
"""

from __future__ import annotations

import struct

from harness.capture.stacks.cpython.process_memory import Memory

HEAD_BYTES, FREE_THREADED_HEAD_BYTES = 16, 32
_TP_NAME = 8  # after the head
_COUNT_BYTES = 6  # from 3.14 flags follow it, before that the count has zeros there
_LARGEST_COUNT = 1 << 32  # 3.12 and 3.13 write one less for what lives for ever
_FREE_THREADED_COUNTS = struct.Struct("<10xBxIq")  # lock, own count, the others' count and two bits


class Objects:
    """`head`: how long an object's head is in that process, once it is known."""

    def __init__(self, memory: Memory) -> None:
        self.head = HEAD_BYTES
        self.memory = memory
        self._type_names: dict[tuple[int, int], bytes] = {}

    def name_type(self, address: int) -> bytes:
        """Of the object there; of what is none, nothing. A freed object's count is a pointer."""
        head = self.memory.read(address, self.head)
        if len(head) < self.head or not is_counted(head):
            return b""
        kind = int.from_bytes(head[-8:], "little")
        known = (kind, self.head)
        if known not in self._type_names:
            name = self.memory.word(kind + self.head + _TP_NAME)
            self._type_names[known] = self.memory.read(name, 32).partition(b"\0")[0] if name else b""
        return self._type_names[known]


def is_counted(head: bytes) -> bool:
    """Somebody refers to the object that begins so."""
    if len(head) == HEAD_BYTES:
        return 0 < int.from_bytes(head[:_COUNT_BYTES], "little") < _LARGEST_COUNT
    lock, own, others = _FREE_THREADED_COUNTS.unpack_from(head)
    return bool(lock < 4 and (own > 0 or others >> 2 > 0))
