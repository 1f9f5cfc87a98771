"""What an ELF-64 image says about itself, in a file or in the memory of a process: segments, names, symbols, slots.

Everything but `function_at` and `sections` comes from the program headers and the dynamic segment, which a loaded image
has too. Read with `struct`; System V gABI chapters 4 and 5, man 5 elf. Little-endian, as every platform we run on.
Every offset and size is checked against what is there: a torn or hostile image gives Unreadable and no huge read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from harness.capture.files.formats.content import Content, open_content, text_at, unpack
from harness.errors import Unreadable

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_SHT_PROGBITS, _SHT_SYMTAB, _SHT_NOBITS, _SHT_DYNSYM = 1, 2, 8, 11
_DT_NEEDED, _DT_PLTRELSZ, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ = 1, 2, 4, 5, 6, 7, 8
_DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_JMPREL, _DT_RUNPATH = 10, 14, 15, 23, 29
_DT_GNU_HASH, _DT_RELACOUNT = 0x6FFFFEF5, 0x6FFFFFF9
_POINTERS = {_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_JMPREL, _DT_GNU_HASH}
_STB_WEAK = 2
_STT_FUNC, _STT_GNU_IFUNC = 2, 10
_SHF_WRITE, _SHF_ALLOC, _SHF_EXECINSTR = 1, 2, 4
_PAGE = 4096
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION_BYTES = 24
_MOST_ENTRIES = 4096  # of a dynamic segment; libtorch_cpu has 40
_MOST_SYMBOLS = 1 << 22  # libtorch_cpu has 110,000
_LONGEST_CHAIN = 1 << 16
_MOST_SHARED = 8  # symbols that share a name: the versions of one function

MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64", 21: "ppc64le", 22: "s390x"}

# (relocation table, numbers of symbols) -> the rows that name one of them, with its number.
RowFinder = Callable[[bytes, Collection[int]], Iterable[tuple[int, int]]]


class Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    file_bytes: int
    memory_bytes: int
    flags: int = 0


class Section(NamedTuple):
    name: str
    kind: int
    flags: int
    offset: int
    file_bytes: int
    link: int


class Symbol(NamedTuple):
    """A row of the dynamic symbol table. `address` as the file has it; add `Elf.bias` for the one in the process.

    `weak`: the image can do without it when nobody defines it.
    """

    number: int
    name: str
    defined: bool
    weak: bool
    address: int
    size: int


class Slot(NamedTuple):
    """Where the loader writes the address of a symbol (a GOT entry, mostly); `address` as with Symbol."""

    name: str
    address: int
    kind: int


class Elf:
    """One image, open until `close`. Raises Unreadable for what is none, is torn or contradicts itself."""

    def __init__(self, source: Path | bytes | Content, base: int | None = None) -> None:
        """A file, the bytes of one, or (with `base`, see `of_memory`) a loaded image."""
        self._content = source if isinstance(source, Content) else open_content(source)
        self._base = base
        try:
            self._read_headers()
        except BaseException:
            self.close()
            raise

    @classmethod
    def of_memory(cls, read: Callable[[int, int], bytes], base: int, size: int) -> Elf:
        """An image loaded at `base`, of `size` bytes to its last mapping's end. `read` takes an absolute address."""
        return cls(Content(lambda position, count: read(base + position, count), size), base)

    def _read_headers(self) -> None:
        head = self._content.read(0, 64)
        if head[:6] != b"\x7fELF\x02\x01":
            raise Unreadable("not a 64-bit little-endian ELF file")
        (self._machine,) = unpack("<H", head, 18)
        table, self._section_table = unpack("<QQ", head, 32)
        size, count, *self._section_shape = unpack("<HHHHH", head, 54)
        if count and size < 56:
            raise Unreadable("program headers of an unknown size")
        rows = self._content.read(table, size * count)
        self.segments = [_segment(rows, size * number) for number in range(count)]
        self.loads = [segment for segment in self.segments if segment.kind == _PT_LOAD]

    def __enter__(self) -> Elf:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._content.close()

    @property
    def machine(self) -> str:
        return MACHINES.get(self._machine, f"machine {self._machine}")

    @property
    def first_address(self) -> int:
        if not self.loads:
            raise Unreadable("nothing to load")
        return min(load.address for load in self.loads) // _PAGE * _PAGE

    @property
    def span(self) -> int | None:
        """Bytes from the first to the last loaded page."""
        if not self.loads:
            return None
        return max(load.address + load.memory_bytes for load in self.loads) - self.first_address

    @property
    def bias(self) -> int:
        """What to add to an address of the image to have it in the process; 0 for a file."""
        return 0 if self._base is None else self._base - self.first_address

    @property
    def is_dynamic(self) -> bool:
        return any(segment.kind == _PT_INTERP for segment in self.segments)

    def needed(self) -> list[str]:
        """The libraries it asks for."""
        return self._names(_DT_NEEDED)

    def soname(self) -> str | None:
        return next(iter(self._names(_DT_SONAME)), None)

    def rpath(self) -> list[str]:
        return [path for text in self._names(_DT_RPATH) for path in text.split(":")]

    def runpath(self) -> list[str]:
        return [path for text in self._names(_DT_RUNPATH) for path in text.split(":")]

    def symbols(self, prefixes: tuple[bytes, ...]) -> list[Symbol]:
        """The dynamic symbols whose name begins with one of these."""
        if not any(prefix in self.strings for prefix in prefixes):
            return []
        starts = self.strings.startswith
        names = memoryview(self._symbol_table).cast("I")[::6]
        found, left = [], _MOST_SHARED * len(self.strings)
        for number in [number for number, at in enumerate(names) if starts(prefixes, at)]:
            found.append(self._symbol(number))
            left -= len(found[-1].name)
            if left < 0:
                raise Unreadable("one name for very many symbols")
        return found

    def undefined(self, prefixes: tuple[bytes, ...]) -> list[Symbol]:
        """Those of `symbols` that it does not define. Quick: they come before the first one in the GNU hash table."""
        table, symbols = self._entry(_DT_GNU_HASH), self._entry(_DT_SYMTAB)
        end = unpack("<II", self.content(table, 8))[1] if table is not None and symbols is not None else 0
        if end <= 1 or symbols is None:  # there is none, or an empty one, which says 0 whatever is undefined
            return [symbol for symbol in self.symbols(prefixes) if not symbol.defined]
        starts = self.strings.startswith
        rows = self.content(symbols, end * _SYMBOL.size)
        numbers = [number for number, at in enumerate(memoryview(rows).cast("I")[::6]) if starts(prefixes, at)]
        return [symbol for symbol in (self._symbol(number, rows) for number in numbers) if not symbol.defined]

    def find(self, name: bytes) -> Symbol | None:
        """The symbol of that name that it defines, by the GNU hash table: a few reads, whatever its size."""
        table, symbols = self._entry(_DT_GNU_HASH), self._entry(_DT_SYMTAB)
        if table is None or symbols is None:
            return next((symbol for symbol in self.symbols((name,)) if symbol.name.encode() == name), None)
        buckets, first, words, shift = unpack("<IIII", self.content(table, 16))
        wanted = _gnu_hash(name)
        (bloom,) = unpack("<Q", self.content(table + 16 + wanted // 64 % max(words, 1) * 8, 8))
        if not bloom >> wanted % 64 & bloom >> (wanted >> shift) % 64 & 1:
            return None
        starts = table + 16 + words * 8
        (start,) = unpack("<I", self.content(starts + wanted % max(buckets, 1) * 4, 4))
        for number in range(start, start + _LONGEST_CHAIN) if start >= max(first, 1) else ():
            (seen,) = unpack("<I", self.content(starts + (buckets + number - first) * 4, 4))
            if seen | 1 == wanted | 1:
                row = self.content(symbols + number * _SYMBOL.size, _SYMBOL.size)
                if (symbol := self._symbol(0, row)).name.encode() == name:
                    return symbol._replace(number=number)
            if seen & 1:
                return None
        return None

    def slots(self, symbols: Iterable[Symbol], find_rows: RowFinder | None = None) -> list[Slot]:
        """Every place where the loader writes the address of one of these symbols. `find_rows` can be quicker."""
        wanted = {symbol.number: symbol.name for symbol in symbols}
        return [
            Slot(wanted[number], *unpack("<QI", table, row * _RELOCATION_BYTES))
            for table in (self._relocations if wanted else ())
            for row, number in (find_rows or _find_rows)(table, wanted)
        ]

    def content(self, address: int, size: int) -> bytes:
        """That many bytes at an address of the image, all of them or Unreadable."""
        return self._content.read(self._position(address, size), size)

    @cached_property
    def strings(self) -> bytes:
        """The dynamic string table; empty when there is none."""
        address, size = self._entry(_DT_STRTAB), self._entry(_DT_STRSZ)
        return self.content(address, size) if address is not None and size else b""

    @cached_property
    def _dynamic(self) -> list[tuple[int, int]]:
        segment = next((segment for segment in self.segments if segment.kind == _PT_DYNAMIC), None)
        if segment is None:
            return []
        size = min(segment.file_bytes // 16, _MOST_ENTRIES) * 16
        entries = []
        for tag, value in struct.iter_unpack("<QQ", self.content(segment.address, size)):
            if tag == 0:
                break
            # glibc turns the pointers of a loaded image into absolute addresses, musl leaves them.
            moved = tag in _POINTERS and self._base is not None and value >= self._base
            entries.append((tag, value - self.bias if moved else value))
        return entries

    @cached_property
    def _firsts(self) -> dict[int, int]:
        return dict(reversed(self._dynamic))

    def _entry(self, tag: int) -> int | None:
        return self._firsts.get(tag)

    def _names(self, tag: int) -> list[str]:
        return [text_at(self.strings, value) for key, value in self._dynamic if key == tag]

    def _symbol(self, number: int, rows: bytes | None = None) -> Symbol:
        table = self._symbol_table if rows is None else rows
        name, info, _, section, value, size = _SYMBOL.unpack_from(table, number * _SYMBOL.size)
        return Symbol(number, text_at(self.strings, name), section != 0, info >> 4 == _STB_WEAK, value, size)

    @cached_property
    def _symbol_table(self) -> bytes:
        address = self._entry(_DT_SYMTAB)
        if address is None:
            return b""
        count = self._count_symbols()
        if count > _MOST_SYMBOLS:
            raise Unreadable("more symbols than a library has")
        return self.content(address, count * _SYMBOL.size)

    def _count_symbols(self) -> int:
        """The dynamic segment does not say it: the hash tables do, or the highest one that a relocation uses."""
        if (table := self._entry(_DT_HASH)) is not None:
            return int(unpack("<II", self.content(table, 8))[1])
        hashed = 0 if (table := self._entry(_DT_GNU_HASH)) is None else self._count_hashed(table)
        used = (max(_symbol_numbers(relocations), default=-1) for relocations in self._relocations)
        return hashed or max(used, default=-1) + 1

    def _count_hashed(self, table: int) -> int:
        """The end of the chain that starts last; https://flapenguin.me/elf-dt-gnu-hash. 0: nothing is defined."""
        buckets, first, words, _ = unpack("<IIII", self.content(table, 16))
        starts = table + 16 + words * 8
        last = max(memoryview(self.content(starts, buckets * 4)).cast("I"), default=0)
        if last < first:
            return 0
        at = starts + buckets * 4 + (last - first) * 4
        for number in range(last, last + _LONGEST_CHAIN):
            if unpack("<I", self.content(at, 4))[0] & 1:
                return number + 1
            at += 4
        raise Unreadable("a hash chain that does not end")

    @cached_property
    def _relocations(self) -> list[bytes]:
        """The tables, without the leading rows that only move an address and name no symbol."""
        skipped = (self._entry(_DT_RELACOUNT) or 0) * _RELOCATION_BYTES
        return [
            self.content(address + skip, (size - skip) // _RELOCATION_BYTES * _RELOCATION_BYTES)
            for tag, size_tag, skip in ((_DT_RELA, _DT_RELASZ, skipped), (_DT_JMPREL, _DT_PLTRELSZ, 0))
            if (address := self._entry(tag)) is not None and (size := self._entry(size_tag) or 0) > skip
        ]

    def _position(self, address: int, size: int) -> int:
        if self._base is not None:
            return address - self.first_address
        for load in self.loads:
            if load.address <= address and address + size <= load.address + load.file_bytes:
                return load.offset + address - load.address
        raise Unreadable("an address outside of the file")

    def function_at(self, offset: int) -> str | None:
        """The function that holds `offset` bytes from the load base; its name as the file has it (mangled)."""
        address = self.first_address + offset
        sections = self.sections()
        for kind in (_SHT_SYMTAB, _SHT_DYNSYM):
            for table in sections:
                if table.kind == kind and table.link < len(sections):
                    for at in self._functions(table, address):
                        return self._content.text(sections[table.link].offset + at)
        return None

    def _functions(self, table: Section, address: int) -> Iterator[int]:
        rows = self._content.read(table.offset, table.file_bytes // _SYMBOL.size * _SYMBOL.size)
        for name, info, _, _, start, length in _SYMBOL.iter_unpack(rows):
            if start <= address < start + length and info & 0xF in (_STT_FUNC, _STT_GNU_IFUNC):
                yield name

    def sections(self) -> list[Section]:
        """Of a file, and empty where they were taken out; a process does not have them, and no loader looks at them."""
        size, count, names = self._section_shape
        if self._base is not None or not self._section_table or not count:
            return []
        if size < 64:
            raise Unreadable("section headers of an unknown size")
        table = self._content.read(self._section_table, size * count)
        rows = [unpack("<IIQQQQI", table, size * number) for number in range(count)]
        texts = self._content.read(rows[names][4], rows[names][5]) if names < count else b""
        return [
            Section(text_at(texts, name), kind, flags, offset, 0 if kind == _SHT_NOBITS else in_file, link)
            for name, kind, flags, _, offset, in_file, link in rows
        ]

    def constants(self) -> Iterator[bytes]:
        """The read-only data, where a library keeps its messages; all that is loaded when nothing says where it is."""
        spans = [
            (section.offset, section.file_bytes)
            for section in self._usable_sections()
            if section.kind == _SHT_PROGBITS
            and section.flags & (_SHF_ALLOC | _SHF_WRITE | _SHF_EXECINSTR) == _SHF_ALLOC
            and not section.name.startswith((".eh_frame", ".gcc_except_table"))
        ]
        if not spans:
            spans = [(self._position(load.address, load.file_bytes), load.file_bytes) for load in self.loads]
        return self._content.read_all(spans)

    def section(self, name: str) -> bytes:
        """What is in it; empty where there is none, as always in a process."""
        section = next((section for section in self._usable_sections() if section.name == name), None)
        return self._content.read(section.offset, section.file_bytes) if section else b""

    def _usable_sections(self) -> list[Section]:
        try:
            return self.sections()
        except ValueError:
            return []  # the file loads without them


def _segment(rows: bytes, at: int) -> Segment:
    kind, flags, offset, address, _, in_file, in_memory = unpack("<IIQQQQQ", rows, at)
    return Segment(kind, offset, address, in_file, in_memory, flags)


def _gnu_hash(name: bytes) -> int:
    value = 5381
    for letter in name:
        value = (value * 33 + letter) & 0xFFFFFFFF
    return value


def _find_rows(table: bytes, wanted: Collection[int]) -> Iterator[tuple[int, int]]:
    return ((row, number) for row, number in enumerate(_symbol_numbers(table)) if number in wanted)


def _symbol_numbers(table: bytes) -> memoryview:
    """The upper half of r_info of each row."""
    return memoryview(table).cast("I")[3::6]
