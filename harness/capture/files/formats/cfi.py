"""Where a function's caller is: the call frame information of one loaded image (.eh_frame), for one address at a time.

LSB Core, "DWARF Extensions", and DWARF 5 section 6.4. Only what compilers emit for ordinary functions, and the one
expression that linkers emit for the entries of a PLT; any other expression, as of a signal frame, is reported as none,
so that nobody walks on by a guess.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from harness.capture.files.formats.content import unpack
from harness.capture.files.formats.elf import Elf
from harness.errors import Unreadable

_PT_GNU_EH_FRAME = 0x6474E550
_HEADER = bytes((1, 0x1B, 0x03, 0x3B))  # version 1; pc-relative, plain and table-relative numbers of 4 bytes
_LONGEST_ENTRY = 1 << 16
_FIXED = {0x0: "Q", 0x2: "H", 0x3: "I", 0x4: "Q", 0xA: "h", 0xB: "i", 0xC: "q"}  # DW_EH_PE_*
_RELATIVE = 0x10
_OMITTED = 0xFF
# rsp + 8, and 8 more from the 11th byte of an entry on, where its push is done (or 10th, 9th: with another first
# instruction): binutils bfd/elfxx-x86.c, "elf_x86_64_eh_frame_plt".
_PLT = (bytes((0x77, 8, 0x80, 0, 0x3F, 0x1A)), bytes((0x2A, 0x33, 0x24, 0x22)))
_RSP = 7

Read = Callable[[int, int], bytes]


class Rules(NamedTuple):
    """The frame's own address is `register` + `offset`; `saved` says where, from there, which registers were kept.

    A register that is null there is lost.
    """

    register: int
    offset: int
    saved: dict[int, int | None]
    returns_by: int


class _Common(NamedTuple):
    code: int
    data: int
    returns_by: int
    encoding: int
    program: bytes


class _Cursor:
    def __init__(self, data: bytes, address: int) -> None:
        self.data, self.address, self.at = data, address, 0

    def take(self, shape: str) -> int:
        (value,) = unpack(f"<{shape}", self.data, self.at)
        self.at += struct.calcsize(shape)
        return int(value)

    def leb(self, signed: bool = False) -> int:
        value = shift = 0
        while True:
            byte = self.take("B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value

    def pointer(self, encoding: int) -> int:
        here = self.address + self.at
        if encoding & 0x0F not in _FIXED or encoding & 0x70 not in (0, _RELATIVE):
            raise Unreadable("an encoding that no compiler here uses")
        value = self.take(_FIXED[encoding & 0x0F])
        return value + here if encoding & 0x70 == _RELATIVE else value

    def text(self) -> bytes:
        end = self.data.index(b"\0", self.at)
        text, self.at = self.data[self.at : end], end + 1
        return text


class FrameTable:
    """Of one image in memory. `base` is where it was loaded; Unreadable: it has no usable table."""

    def __init__(self, read: Read, base: int, size: int) -> None:
        self._read = read
        with Elf.of_memory(read, base, size) as elf:
            segment = next((one for one in elf.segments if one.kind == _PT_GNU_EH_FRAME), None)
            if segment is None:
                raise Unreadable("no frame table")
            self._table = segment.address + elf.bias
        head = self._exactly(self._table, 12)
        if head[:4] != _HEADER:
            raise Unreadable("a frame table of another kind")
        (self._count,) = unpack("<I", head, 8)
        self._commons: dict[int, _Common] = {}

    def find(self, address: int) -> Rules | None:
        """Null: nothing is said about this address, or nothing that can be followed."""
        try:
            start, entry = self._row(self._last_before(address))
            return self._rules(entry, address) if start <= address else None
        except (ValueError, LookupError):
            return None

    def find_span(self, address: int) -> tuple[int, int] | None:
        """Where the function, or the part of one, that holds this address begins and ends."""
        try:
            entry = self._entry(self._row(self._last_before(address))[1])
            encoding = self._common(entry.address - entry.take("I")).encoding
            start = entry.pointer(encoding)
            end = start + entry.pointer(encoding & 0x0F)
        except (ValueError, LookupError):
            return None
        return (start, end) if start <= address < end else None

    def _exactly(self, address: int, size: int) -> bytes:
        data = self._read(address, size)
        if len(data) != size:
            raise Unreadable("cut short")
        return data

    def _row(self, number: int) -> tuple[int, int]:
        start, entry = unpack("<ii", self._exactly(self._table + 12 + 8 * number, 8))
        return self._table + start, self._table + entry

    def _last_before(self, address: int) -> int:
        low, high = 0, self._count - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._row(middle)[0] <= address:
                low = middle
            else:
                high = middle - 1
        return low

    def _entry(self, address: int) -> _Cursor:
        (length,) = unpack("<I", self._exactly(address, 4))
        if not 4 <= length <= _LONGEST_ENTRY:
            raise Unreadable("no entry")
        return _Cursor(self._exactly(address + 4, length), address + 4)

    def _rules(self, address: int, wanted: int) -> Rules | None:
        entry = self._entry(address)
        common = self._common(entry.address - entry.take("I"))
        start = entry.pointer(common.encoding)
        if not start <= wanted < start + entry.pointer(common.encoding & 0x0F):
            return None
        entry.at += entry.leb()
        machine = _Machine(common, start)
        machine.run(common.program)
        machine.initial = dict(machine.saved)
        machine.run(entry.data[entry.at :], wanted)
        return Rules(machine.register, machine.offset, machine.saved, common.returns_by)

    def _common(self, address: int) -> _Common:
        if address not in self._commons:
            self._commons[address] = _read_common(self._entry(address))
        return self._commons[address]


def _read_common(entry: _Cursor) -> _Common:
    if entry.take("I") != 0:
        raise Unreadable("no common entry")
    version, augmentation = entry.take("B"), entry.text()
    if augmentation[:1] != b"z" or b"S" in augmentation:
        raise Unreadable("a signal's frame, or an entry of an unknown shape")
    code, data = entry.leb(), entry.leb(signed=True)
    returns_by = entry.take("B") if version == 1 else entry.leb()
    end = entry.leb() + entry.at
    encoding = 0
    for letter in augmentation[1:]:
        if letter == ord("R"):
            encoding = entry.take("B")
        elif letter == ord("L"):
            entry.take("B")
        elif letter == ord("P") and (personality := entry.take("B")) != _OMITTED:
            entry.pointer(personality & 0x7F)
    return _Common(code, data, returns_by, encoding, entry.data[end:])


class _Machine:
    """Runs the instructions of an entry up to one address."""

    def __init__(self, common: _Common, start: int) -> None:
        self._common, self._address = common, start
        self.register, self.offset = 0, 0
        self.saved: dict[int, int | None] = {}
        self.initial: dict[int, int | None] = {}
        self._kept: list[tuple[int, int, dict[int, int | None]]] = []
        self._wanted = 0

    def run(self, program: bytes, wanted: int | None = None) -> None:
        code = _Cursor(program, 0)
        self._wanted = wanted or 0
        while code.at < len(program):
            operation = code.take("B")
            step = self._advance(operation, code)
            if step is None:
                self._do(operation, code)
            elif wanted is not None and self._address + step > wanted:
                return
            else:
                self._address += step

    def _advance(self, operation: int, code: _Cursor) -> int | None:
        if operation >> 6 == 1:
            return (operation & 0x3F) * self._common.code
        shape = {0x02: "B", 0x03: "H", 0x04: "I"}.get(operation)
        return code.take(shape) * self._common.code if shape else None

    def _do(self, operation: int, code: _Cursor) -> None:
        high, low = operation & 0xC0, operation & 0x3F
        if high == 0x80:
            self.saved[low] = code.leb() * self._common.data
        elif high == 0xC0:
            self._restore(low)
        elif operation in (0x0C, 0x12):  # def_cfa, def_cfa_sf
            self.register = code.leb()
            self.offset = code.leb() if operation == 0x0C else code.leb(signed=True) * self._common.data
        elif operation == 0x0D:
            self.register = code.leb()
        elif operation in (0x0E, 0x13):  # def_cfa_offset, def_cfa_offset_sf
            self.offset = code.leb() if operation == 0x0E else code.leb(signed=True) * self._common.data
        else:
            self._do_seldom(operation, code)

    def _do_seldom(self, operation: int, code: _Cursor) -> None:
        if operation in (0x05, 0x11):  # offset_extended, offset_extended_sf
            self.saved[code.leb()] = code.leb(signed=operation == 0x11) * self._common.data
        elif operation == 0x06:
            self._restore(code.leb())
        elif operation == 0x07:
            self.saved[code.leb()] = None
        elif operation == 0x08:  # same_value
            self.saved.pop(code.leb(), None)
        elif operation == 0x0A:
            self._kept.append((self.register, self.offset, dict(self.saved)))
        elif operation == 0x0B:
            self.register, self.offset, self.saved = self._kept.pop()
        elif operation == 0x0F:  # def_cfa_expression
            self._use_expression(bytes(code.take("B") for _ in range(code.leb())))
        elif operation == 0x2E:  # GNU_args_size
            code.leb()
        elif operation not in (0x00, 0x2D):  # nop; on aarch64 the return address may be signed from here on
            raise Unreadable("a rule that is an expression, or unknown")

    def _use_expression(self, words: bytes) -> None:
        if (words[:6], words[7:]) != _PLT:
            raise Unreadable("a rule that is an expression")
        self.register = _RSP
        self.offset = 16 if self._wanted & 15 >= words[6] - 0x30 else 8

    def _restore(self, register: int) -> None:
        self.saved.pop(register, None)
        if register in self.initial:
            self.saved[register] = self.initial[register]
