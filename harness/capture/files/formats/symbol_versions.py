"""Which versions of which symbols an ELF library defines, and which ones a caller asks of it.

Reads three tables of the dynamic segment that elf.py has no use for; https://refspecs.linuxfoundation.org/LSB_5.0.0/
LSB-Core-generic/LSB-Core-generic/symversion.html. Whether one library can stand in for another is asked elsewhere.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from harness.capture.files.formats.content import unpack
from harness.capture.files.formats.elf import Elf, Symbol
from harness.errors import Unreadable

_PT_DYNAMIC = 2
_DT_VERSYM, _DT_VERDEF, _DT_VERDEFNUM, _DT_VERNEED, _DT_VERNEEDNUM = (
    0x6FFFFFF0,
    0x6FFFFFFC,
    0x6FFFFFFD,
    0x6FFFFFFE,
    0x6FFFFFFF,
)
_HIDDEN = 0x8000  # the version is not the default one; a caller that names it still gets it
_MOST = 1024  # versions of one library; glibc has 40


class Demand(NamedTuple):
    """`versions`: what the loader checks before it looks up any symbol (it refuses to load the caller otherwise)."""

    symbols: frozenset[tuple[str, str | None]]
    versions: frozenset[str]


class Offer(NamedTuple):
    symbols: frozenset[tuple[str, str | None]]
    versions: frozenset[str]

    def lacks(self, demand: Demand) -> list[str]:
        """glibc lets a library without any versions pass, with a warning or (2.36) a failed assertion. We do not."""
        names = {name for name, _ in self.symbols}
        missing = {name for name, _ in demand.symbols if name not in names}
        asked = ((name, version) for name, version in demand.symbols if version and name in names)
        missing |= {f"{name}@{version}" for name, version in asked if (name, version) not in self.symbols}
        return sorted(missing | (demand.versions - self.versions))


def read_offer(elf: Elf, prefixes: tuple[bytes, ...]) -> Offer:
    """What the library defines, of the names that begin like this."""
    tables = _dynamic(elf)
    names = dict(_definitions(elf, tables))
    defined = [symbol for symbol in elf.symbols(prefixes) if symbol.defined]
    return Offer(
        frozenset((symbol.name, names.get(_version_number(elf, tables, symbol))) for symbol in defined),
        frozenset(names.values()),
    )


def read_demand(elf: Elf, libraries: Iterable[str], wanted: Iterable[str]) -> Demand:
    """What the caller asks for, of the symbols `wanted`; `libraries`: the names under which it may know the library."""
    tables = _dynamic(elf)
    libraries, wanted = set(libraries), set(wanted)
    needs = list(_needs(elf, tables))
    names = {number: version for _, number, version in needs}
    asked = [symbol for symbol in elf.symbols(tuple(name.encode() for name in wanted)) if not symbol.defined]
    return Demand(
        frozenset((s.name, names.get(_version_number(elf, tables, s))) for s in asked if s.name in wanted),
        frozenset(version for file, _, version in needs if file in libraries),
    )


def _dynamic(elf: Elf) -> dict[int, int]:
    segment = next((segment for segment in elf.segments if segment.kind == _PT_DYNAMIC), None)
    if segment is None:
        return {}
    rows = elf.content(segment.address, segment.file_bytes // 16 * 16)
    return dict(struct.iter_unpack("<QQ", rows))


def _version_number(elf: Elf, tables: dict[int, int], symbol: Symbol) -> int:
    """Of the definitions or needs; 0 and 1 are none."""
    if (table := tables.get(_DT_VERSYM)) is None:
        return 0
    (number,) = unpack("<H", elf.content(table + 2 * symbol.number, 2))
    return int(number) & ~_HIDDEN


def _definitions(elf: Elf, tables: dict[int, int]) -> Iterator[tuple[int, str]]:
    """Elf64_Verdef and its first Elf64_Verdaux; the first of them is the library's own name."""
    at = tables.get(_DT_VERDEF)
    for _ in range(min(tables.get(_DT_VERDEFNUM, 0), _MOST) if at else 0):
        assert at is not None
        _, flags, number, _, _, first, step = unpack("<HHHHIII", elf.content(at, 20))
        (name,) = unpack("<I", elf.content(at + first, 4))
        if not flags & 1:  # VER_FLG_BASE
            yield number, _text(elf, name)
        at += step


def _needs(elf: Elf, tables: dict[int, int]) -> Iterator[tuple[str, int, str]]:
    """(library, number, version) for each Elf64_Vernaux of each Elf64_Verneed."""
    at = tables.get(_DT_VERNEED)
    for _ in range(min(tables.get(_DT_VERNEEDNUM, 0), _MOST) if at else 0):
        assert at is not None
        _, count, file, first, step = unpack("<HHIII", elf.content(at, 16))
        inner = at + first
        for _ in range(min(count, _MOST)):
            _, _, number, name, inner_step = unpack("<IHHII", elf.content(inner, 16))
            yield _text(elf, file), number, _text(elf, name)
            inner += inner_step
        at += step


def _text(elf: Elf, at: int) -> str:
    end = elf.strings.find(b"\0", at)
    if end == -1:
        raise Unreadable("a name that does not end")
    return elf.strings[at:end].decode(errors="replace")
