"""What an ELF-64 file says about itself: its segments, the libraries it asks for, the function at an address.

Reads headers and symbol tables only, with `struct`; System V gABI chapters 4 and 5, man 5 elf. Little-endian, as every
platform we run on.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import NamedTuple

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_DT_NEEDED, _DT_STRTAB = 1, 5
_STT_FUNC, _STT_GNU_IFUNC = 2, 10
_PAGE = 4096
_SYMBOL = struct.Struct("<IBBHQQ")


class Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    file_bytes: int
    memory_bytes: int


class Elf:
    """One file, mapped while it is open. Raises ValueError for what is no such file, struct.error for a torn one."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            if file.read(6) != b"\x7fELF\x02\x01":
                raise ValueError("not a 64-bit little-endian ELF file")
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        (table,) = struct.unpack_from("<Q", self._data, 32)
        size, count = struct.unpack_from("<HH", self._data, 54)
        self.segments = [self._segment(table + size * number) for number in range(count)]
        self.loads = [segment for segment in self.segments if segment.kind == _PT_LOAD]

    def __enter__(self) -> Elf:
        return self

    def __exit__(self, *_: object) -> None:
        self._data.close()

    def _segment(self, at: int) -> Segment:
        kind, _, offset, address, _, in_file, in_memory = struct.unpack_from("<IIQQQQQ", self._data, at)
        return Segment(kind, offset, address, in_file, in_memory)

    @property
    def first_address(self) -> int:
        return min(load.address for load in self.loads) // _PAGE * _PAGE

    @property
    def span(self) -> int | None:
        """Bytes from the first to the last loaded page."""
        if not self.loads:
            return None
        return max(load.address + load.memory_bytes for load in self.loads) - self.first_address

    @property
    def is_dynamic(self) -> bool:
        return any(segment.kind == _PT_INTERP for segment in self.segments)

    def needed(self) -> list[str]:
        """The libraries it asks for."""
        dynamic = next((segment for segment in self.segments if segment.kind == _PT_DYNAMIC), None)
        if dynamic is None:
            return []
        entries = [
            struct.unpack_from("<qQ", self._data, dynamic.offset + 16 * number)
            for number in range(dynamic.file_bytes // 16)
        ]
        strings = next(value for tag, value in entries if tag == _DT_STRTAB)
        return [self._text(self._offset_of(strings + value)) for tag, value in entries if tag == _DT_NEEDED]

    def function_at(self, offset: int) -> str | None:
        """The function that holds `offset` bytes from the load base; its name as the file has it (mangled)."""
        address = self.first_address + offset
        for kind in (_SHT_SYMTAB, _SHT_DYNSYM):
            for entry, size, strings in self._tables(kind):
                for name, info, _, _, start, length in _SYMBOL.iter_unpack(self._data[entry : entry + size]):
                    if start <= address < start + length and info & 0xF in (_STT_FUNC, _STT_GNU_IFUNC):
                        return self._text(strings + name)
        return None

    def _tables(self, kind: int) -> list[tuple[int, int, int]]:
        """(offset, bytes, offset of the names) of each symbol table of this kind."""
        (table,) = struct.unpack_from("<Q", self._data, 40)
        size, count = struct.unpack_from("<HH", self._data, 58)
        headers = [struct.unpack_from("<IIQQQQIIQQ", self._data, table + size * number) for number in range(count)]
        return [(header[4], header[5], headers[header[6]][4]) for header in headers if header[1] == kind]

    def _offset_of(self, address: int) -> int:
        for load in self.loads:
            if load.address <= address < load.address + load.file_bytes:
                return load.offset + address - load.address
        raise ValueError("an address outside of the file")

    def _text(self, offset: int) -> str:
        return self._data[offset : self._data.find(b"\0", offset)].decode(errors="replace")
