"""The functions at addresses of loaded images, by the symbol tables of their files, or of the images in memory. Linux.

A file's own table first, then that of its debug file (man 5 elf, .note.gnu.build-id), then what it exports. Knows no
lines and nothing that is inlined. Names are as a person writes them: demangled where the C++ runtime is there.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from harness.capture.files.formats.content import open_content
from harness.capture.files.formats.elf import Elf
from harness.capture.stacks.callers import demangle
from harness.evidence.crash import Image

_ROW = struct.Struct("<IBBHQQ")
_FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_BINDINGS = {1: 3, 2: 2}  # global before weak before local, as elfutils has it
_DEBUG_FILES = Path("/usr/lib/debug/.build-id")
_HEAD = 4096
_SYMTAB, _DYNSYM = 2, 11
_LARGEST_BITS = 22  # no function is larger than 4 MiB
_FAILURES = (OSError, ValueError, struct.error)

Read = Callable[[int, int], bytes]
_Found = dict[int, tuple[int, int, str]]  # by address: where the function begins, its binding, its name


def name_functions(images: dict[Image, set[int]], read: Read, root: Path) -> dict[int, str]:
    """By address. `images`: what of each is asked for; `root`: where the process's files are for us."""
    names: dict[int, str] = {}
    for image, addresses in images.items():
        base = int(image.base, 16)
        found = _search(image, {address - base for address in addresses}, read, root)
        names |= {base + offset: demangle(name) for offset, name in found.items()}
    return names


def _search(image: Image, offsets: set[int], read: Read, root: Path) -> dict[int, str]:
    found: dict[int, str] = {}
    for table in _list_tables(image, read, root):
        try:
            found |= table(offsets - found.keys())
        except _FAILURES:
            continue
        if len(found) == len(offsets):
            break
    return found


def _list_tables(image: Image, read: Read, root: Path) -> Iterator[Callable[[set[int]], dict[int, str]]]:
    file = _find_file(image, read, root)
    if file is None:
        yield lambda offsets: _search_memory(image, read, offsets)
        return
    yield lambda offsets: _search_file(file, _SYMTAB, offsets)
    yield lambda offsets: _search_file(_find_debug_file(file), _SYMTAB, offsets)
    yield lambda offsets: _search_file(file, _DYNSYM, offsets)


def _find_file(image: Image, read: Read, root: Path) -> Path | None:
    """Null where it is no longer the one that was loaded."""
    head = read(int(image.base, 16), _HEAD)
    for path in (Path(image.path), root / image.path.lstrip("/")):
        try:
            with path.open("rb") as file:
                if head and file.read(len(head)) == head:
                    return path
        except OSError:
            continue
    return None


def _find_debug_file(file: Path) -> Path:
    with Elf(file) as elf:
        number = elf.section(".note.gnu.build-id")[16:].hex()
    return _DEBUG_FILES / number[:2] / f"{number[2:]}.debug"


def _search_file(file: Path, kind: int, offsets: set[int]) -> dict[int, str]:
    """Only the names that are asked for are read: those of torch take 40 MiB."""
    with Elf(file) as elf, open_content(file) as content:
        sections, first = elf.sections(), elf.first_address
        best: _Found = {}
        for table in [section for section in sections if section.kind == kind]:
            size = table.file_bytes // _ROW.size * _ROW.size
            rows = content.read(table.offset, size)
            numbers = memoryview(rows).cast("Q")
            for number, address in _search_rows(numbers[1::3], numbers[2::3], [offset + first for offset in offsets]):
                name, info, _, section, start, _ = _ROW.unpack_from(rows, number * _ROW.size)
                if info & 0xF in _FUNCTIONS and section:
                    word = content.text(sections[table.link].offset + name)
                    _keep_better(best, address - first, (start, _BINDINGS.get(info >> 4, 1), word))
    return {offset: word for offset, (_, _, word) in best.items()}


def _search_memory(image: Image, read: Read, offsets: set[int]) -> dict[int, str]:
    base = int(image.base, 16)
    with Elf.of_memory(read, base, int(image.end, 16) - base) as elf:
        symbols = [symbol for symbol in elf.symbols((b"",)) if symbol.defined]
        first = elf.first_address
    starts, sizes = [symbol.address for symbol in symbols], [symbol.size for symbol in symbols]
    found = _search_rows(starts, sizes, [offset + first for offset in offsets])
    return {address - first: symbols[number].name for number, address in found}


def _search_rows(starts: Sequence[int], sizes: Sequence[int], addresses: list[int]) -> Iterator[tuple[int, int]]:
    """Which rows hold which of the addresses. Torch has 500,000 rows, and few addresses are asked for."""
    wanted = sorted(addresses)
    near = {part for address in wanted for part in (address >> _LARGEST_BITS, (address >> _LARGEST_BITS) - 1)}
    for number in [number for number, start in enumerate(starts) if start >> _LARGEST_BITS in near]:
        start, size = starts[number], sizes[number]
        at = bisect_left(wanted, start)
        while at < len(wanted) and wanted[at] < start + size:
            yield number, wanted[at]
            at += 1


def _keep_better(best: _Found, offset: int, row: tuple[int, int, str]) -> None:
    if offset not in best or row[:2] > best[offset][:2]:
        best[offset] = row
