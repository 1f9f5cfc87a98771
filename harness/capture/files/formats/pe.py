"""What a Windows DLL says about itself: the libraries it asks for, with the functions of each, and what it offers.

Read from the import, delay-import and export tables with `struct`; https://learn.microsoft.com/windows/win32/debug/pe-format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property

from harness.capture.files.formats.content import Content, unpack
from harness.capture.files.formats.macho import Import
from harness.errors import Unreadable

_EXPORTS, _IMPORTS, _DELAYED = 0, 1, 13  # of the data directories
_MOST_LIBRARIES, _MOST_FUNCTIONS = 1 << 10, 1 << 18
_MOST_SHARED = 8  # times that a name is read
_CODE_OR_WRITABLE = 0x20 | 0x20000000 | 0x80000000
_MACHINES = {0x14C: "i386", 0x8664: "x86_64", 0xAA64: "arm64"}


class Pe:
    """One image, 64-bit or 32-bit. Raises Unreadable for what is none or is torn."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._left = _MOST_SHARED * content.size_bytes
        head = content.read(0, 64)
        (start,) = unpack("<I", head, 60)
        if head[:2] != b"MZ" or content.read(start, 4) != b"PE\0\0":
            raise Unreadable("not a Windows executable")
        machine, sections, _, _, _, size, _ = unpack("<HHIIIHH", content.read(start + 4, 20))
        self.machine = _MACHINES.get(machine, f"machine {machine:#x}")
        header = content.read(start + 24, size)
        if header[:2] not in (b"\x0b\x01", b"\x0b\x02"):
            raise Unreadable("not a Windows image")
        self._is_64 = header[:2] == b"\x0b\x02"
        directories = header[112 if self._is_64 else 96 :]
        self._directories = list(struct.iter_unpack("<II", directories[: len(directories) // 8 * 8]))
        self._sections = list(struct.iter_unpack("<8sIIIIIIHHI", content.read(start + 24 + size, sections * 40)))

    @property
    def needed(self) -> list[str]:
        return list(self._imports)

    @property
    def name(self) -> str | None:
        table = self._directory(_EXPORTS)
        return self._text(unpack("<I", table, 12)[0]) if table else None

    def imports(self, prefixes: tuple[bytes, ...]) -> list[Import]:
        """The functions that begin with one of these; those asked for by number have no name."""
        wanted = tuple(prefix.decode() for prefix in prefixes)
        return [
            Import(name, library, False)
            for library, names in self._imports.items()
            for name in names
            if name.startswith(wanted)
        ]

    def exports(self, prefixes: tuple[bytes, ...]) -> list[str]:
        table = self._directory(_EXPORTS)
        if not table:
            return []
        count, _, names = unpack("<III", table, 24)
        if count > _MOST_FUNCTIONS:
            raise Unreadable("more functions than a library has")
        wanted = tuple(prefix.decode() for prefix in prefixes)
        texts = (self._text(at) for (at,) in struct.iter_unpack("<I", self._read(names, count * 4)))
        return [name for name in texts if name.startswith(wanted)]

    def constants(self) -> Iterator[bytes]:
        """The read-only data, where a library keeps its messages, and its version."""
        return self._content.read_all(
            [(row[4], row[3]) for row in self._sections if not row[9] & _CODE_OR_WRITABLE and row[3]]
        )

    @cached_property
    def _imports(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        left = _MOST_FUNCTIONS
        for name, thunks in [*self._descriptors(_IMPORTS, 20, 12, 0), *self._descriptors(_DELAYED, 32, 4, 16)]:
            functions = self._functions(thunks, left)
            left -= len(functions) + 1
            found.setdefault(self._text(name), []).extend(functions)
        return found

    def _descriptors(self, directory: int, size: int, name: int, thunks: int) -> Iterator[tuple[int, int]]:
        """(address of the library's name, address of its list of functions)."""
        at = self._directories[directory][0] if directory < len(self._directories) else 0
        for _ in range(_MOST_LIBRARIES if at else 0):
            row = self._read(at, size)
            if not any(row):
                return
            yield unpack("<I", row, name)[0], unpack("<I", row, thunks)[0]
            at += size

    def _functions(self, at: int, most: int) -> list[str]:
        names: list[str] = []
        width, by_number = (8, 1 << 63) if self._is_64 else (4, 1 << 31)
        for _ in range(most if at else 0):
            entry = int.from_bytes(self._read(at, width), "little")
            if entry == 0:
                return names
            if not entry & by_number:
                names.append(self._text((entry & 0x7FFFFFFF) + 2))
            at += width
        if at:
            raise Unreadable("more functions than a library has")
        return names

    def _directory(self, number: int) -> bytes:
        at, size = self._directories[number] if number < len(self._directories) else (0, 0)
        return self._read(at, 40) if at and size >= 40 else b""

    def _read(self, address: int, size: int) -> bytes:
        return self._content.read(self._position(address, size), size)

    def _text(self, address: int) -> str:
        text = self._content.text(self._position(address, 1))
        self._left -= len(text)
        if self._left < 0:
            raise Unreadable("one name for very many functions")
        return text

    def _position(self, address: int, size: int) -> int:
        for _, _, start, in_file, offset, *_ in self._sections:
            if start <= address and address + size <= start + in_file:
                return int(offset + address - start)
        raise Unreadable("an address outside of the file")
