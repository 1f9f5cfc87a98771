"""Symbols found by hash and slots of undefined symbols, against the plain walk through the same tables."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.capture.files.binaries import OPENMP_NAMES
from harness.capture.files.formats.elf import Elf
from harness.capture.files.layout import find_rows, read_file_layout, read_layout
from harness.capture.openmp.variables import read_variables
from harness.native import LIBRARY

SITE = Path(sys.prefix, "lib", f"python3.{sys.version_info[1]}", "site-packages")
FILES = [
    path
    for path in (
        LIBRARY,
        Path("/usr/lib/llvm-14/lib/libomp.so.5"),
        SITE / "torch/lib/libgomp.so.1",
        SITE / "faiss/libfaiss.so",
        Path(sys.executable).resolve(),
    )
    if path.exists()
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_undefined_symbols_and_their_slots(path: Path) -> None:
    with Elf(path) as elf:
        for prefixes in (OPENMP_NAMES, (b"pthread_", b"mem"), (b"no_such_",)):
            slow = [symbol for symbol in elf.symbols(prefixes) if not symbol.defined]
            assert elf.undefined(prefixes) == slow
            assert elf.slots(slow, find_rows) == elf.slots(slow)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_defined_symbol_is_found_by_its_name(path: Path) -> None:
    with Elf(path) as elf:
        defined = [symbol for symbol in elf.symbols((b"",)) if symbol.defined][:400]
        local = {"__kmp_gtid"}  # in the table, but nobody else can be bound to it
        for symbol in (symbol for symbol in defined if symbol.name not in local):
            found = elf.find(symbol.name.encode())
            assert found is not None and (found.name, found.defined) == (symbol.name, True)
        assert elf.find(b"no_such_symbol_anywhere") is None


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    copy = tmp_path / "library.so"
    copy.write_bytes(FILES[0].read_bytes())
    assert read_file_layout(str(copy)) == read_file_layout(str(FILES[0]))
    copy.write_bytes(b"\x7fELF")
    with pytest.raises(ValueError):
        read_file_layout(str(copy))


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=20), st.booleans())
def test_a_damaged_file_gives_a_clean_error(changes: list[tuple[int, int]], cut: bool) -> None:
    data = bytearray(FILES[0].read_bytes())
    for at, value in changes:
        data[at % min(len(data), 1 << 14)] = value
    if cut:
        del data[changes[0][0] % len(data) :]
    try:
        read_layout(Elf(bytes(data)))
    except (ValueError, struct.error, OverflowError):
        pass


def test_variables_are_read_across_pages_and_only_to_their_end() -> None:
    """Two pages, of which the second ends the memory: nothing past the zero byte is asked for."""
    text = b"OMP_NUM_THREADS=" + b"4" * 40 + b"\0"
    memory = bytearray(8192)
    array, first, second = 0x1000, 0x1FF0, 0x2FFE
    base = 0x1000
    memory[0x0:0x18] = struct.pack("<QQQ", first, second, 0)
    memory[first - base : first - base + len(text)] = text
    memory[second - base :] = b"A\0"

    def read(address: int, size: int) -> bytes:
        if address == 0x500:
            return array.to_bytes(8, "little")
        return bytes(memory[address - base : address - base + size])

    assert read_variables(read, 0x500) == [text[:-1], b"A"]
