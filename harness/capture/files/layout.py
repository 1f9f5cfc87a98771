"""Where in a loaded image its OpenMP calls keep their targets, and a variable worth reading: from the ELF tables.

Says nothing of what is there: that is in the memory of the process (sighting.py). The answer for a file is remembered
for as long as the file is the same, so a second look costs a `stat`.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from harness.capture.files.binaries import OPENMP_NAMES
from harness.capture.files.formats.elf import Elf
from harness.native import LIBRARY, load

_ROW_BYTES = 24
_MOST_ROWS = 1 << 16
_ENVIRON = (b"__environ", b"environ")
_OPENBLAS_THREADS = b"blas_cpu_number"
FAILURES = (OSError, ValueError, struct.error, OverflowError)


class Layout(NamedTuple):
    """Bytes from the load base. `size`: with the zeroed data, which no mapping of the file shows.

    `openblas_threads`: a variable that OpenBLAS exports. The OpenMP runtimes export nothing of the kind.
    """

    size: int
    slots: tuple[tuple[str, int], ...]
    openblas_threads: int | None


def read_layout(elf: Elf) -> Layout:
    first = elf.first_address
    slots = elf.slots(elf.undefined(OPENMP_NAMES), find_rows if LIBRARY.exists() else None)
    return Layout(
        size=elf.span or 0,
        slots=tuple((slot.name, slot.address - first) for slot in slots),
        openblas_threads=_find(elf, _OPENBLAS_THREADS),
    )


def read_file_layout(path: str) -> Layout:
    """Raises one of FAILURES for what cannot be read."""
    now = Path(path).stat()
    return _remember(path, (now.st_dev, now.st_ino, now.st_mtime_ns, now.st_size))


@lru_cache(maxsize=4096)
def _remember(path: str, _identity: tuple[int, ...]) -> Layout:
    with Elf(Path(path)) as elf:
        return read_layout(elf)


def find_environ(path: str) -> int | None:
    """Where libc, or a program that has taken that over, keeps the environment."""
    with Elf(Path(path)) as elf:
        return _find(elf, *_ENVIRON)


def _find(elf: Elf, *names: bytes) -> int | None:
    symbol = next(filter(None, map(elf.find, names)), None)
    return symbol.address - elf.first_address if symbol else None


def find_rows(table: bytes, wanted: Collection[int]) -> Iterator[tuple[int, int]]:
    """The rows of a relocation table that name one of these symbols. In C: libtorch_cpu has 140,000 rows.

    On another host our library is not there, and elf.py does the same in a few tenths of a second.
    """
    ffi, lib = load()
    rows = ffi.new("uint32_t[]", _MOST_ROWS)
    count = lib.harness_find_relocations(
        ffi.from_buffer(table), len(table) // _ROW_BYTES, min(wanted), max(wanted), rows, _MOST_ROWS
    )
    if count > _MOST_ROWS:
        raise ValueError("more relocations than a library has")
    for row in ffi.unpack(rows, count):
        (number,) = struct.unpack_from("<I", table, row * _ROW_BYTES + 12)
        if number in wanted:
            yield row, number
