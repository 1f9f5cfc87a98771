"""Which frames of a stripped interpreter evaluate Python: also those in the part of the function that has no name.

A compiler that knows what is seldom used moves it away from the rest of a function. Of CPython's loop that part has a
name of its own only in the table that stripping removes; it is known by the jumps that lead into the middle of it from
the part whose name is exported. x86_64; elsewhere nothing is said.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache

from harness.capture.files.formats.cfi import FrameTable
from harness.capture.files.formats.elf import Elf
from harness.capture.files.images import PYTHON_FILE
from harness.evidence.crash import Image

_LOOP = b"_PyEval_EvalFrameDefault"
_ENOUGH_JUMPS = 3  # one alone may be bytes that only look like a jump
_LARGEST = 1 << 20
_X86_64 = "x86_64"

Read = Callable[[int, int], bytes]


class Evaluators:
    """Of one process, as its memory is."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._find_parts = cache(self._search_parts)

    def evaluates(self, address: int, image: Image | None) -> bool:
        """Whether this return address is in the loop's other part."""
        if image is None or not PYTHON_FILE.search(image.path):
            return False
        table, jumps = self._find_parts(int(image.base, 16), int(image.end, 16))
        span = table.find_span(address - 1) if table else None
        return span is not None and sum(span[0] < jump < span[1] for jump in jumps) >= _ENOUGH_JUMPS

    def _search_parts(self, base: int, end: int) -> tuple[FrameTable | None, frozenset[int]]:
        """And where the named part jumps to outside of itself."""
        try:
            elf = Elf.of_memory(self._read, base, end - base)
            symbol, table = elf.find(_LOOP), FrameTable(self._read, base, end - base)
            span = table.find_span(symbol.address + elf.bias) if symbol else None
        except (ValueError, struct.error):
            return None, frozenset()
        if span is None or elf.machine != _X86_64 or span[1] - span[0] > _LARGEST:
            return None, frozenset()
        jumps = _list_jumps(self._read(span[0], span[1] - span[0]), span[0])
        return table, frozenset(jump for jump in jumps if not span[0] <= jump < span[1])


def _list_jumps(code: bytes, start: int) -> Iterator[int]:
    """jcc rel32 and jmp rel32, at whatever byte they may begin."""
    for at in range(len(code) - 6):
        if code[at] == 0x0F and code[at + 1] & 0xF0 == 0x80:
            yield start + at + 6 + int(struct.unpack_from("<i", code, at + 2)[0])
        elif code[at] == 0xE9:
            yield start + at + 5 + int(struct.unpack_from("<i", code, at + 1)[0])
