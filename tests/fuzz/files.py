"""Readers of files: native ones, cores, arrays, wheels, and what we keep. Where somebody else reads it, both agree."""

from __future__ import annotations

import contextlib
import io
import math
import struct
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from harness.capture.arrays.archive import read_array_file
from harness.capture.arrays.header import read_header
from harness.capture.cores.file import CoreFile
from harness.capture.cores.signal_frame import find_interrupted
from harness.capture.files.binaries import OPENMP_NAMES, read_binaries
from harness.capture.files.formats.cfi import FrameTable
from harness.capture.files.formats.elf import Elf
from harness.capture.files.formats.symbol_versions import read_demand, read_offer
from harness.capture.files.linking import read_loader_cache
from harness.capture.files.owners import read_records, split_line
from harness.capture.openmp.wheels import read_wheels
from harness.documents.openmp_fix import Link as KeptLink
from harness.errors import Unreadable
from harness.evidence.case import is_being_written
from harness.remedy.links import JOURNAL, Journal, read_journal
from tests.fuzz.registry import keep, load, target

# Native files

NATIVES = load("elf_runtime.bin.gz", "elf_caller.bin.gz")
FOREIGN = load("macho_runtime.bin.gz", "macho_caller.bin.gz", "pe_runtime.bin.gz", "pe_caller.bin.gz")


@target("native files", *NATIVES, *FOREIGN, text=False)
def read_natives(data: bytes) -> None:
    read_binaries(data)


@target("elf", *NATIVES, text=False)
def read_elf(data: bytes) -> None:
    with Elf(data) as elf:
        for ask in (
            elf.needed,
            elf.soname,
            elf.rpath,
            elf.runpath,
            elf.sections,
            lambda: elf.symbols(OPENMP_NAMES),
            lambda: elf.undefined(OPENMP_NAMES),
            lambda: elf.find(b"__kmpc_fork_call"),
            lambda: elf.function_at(0x1000),
            lambda: elf.section(".comment"),
            lambda: elf.slots(elf.symbols((b"",))),
            lambda: list(elf.constants()),
            lambda: read_offer(elf, OPENMP_NAMES),
            lambda: read_demand(elf, ("libomp.so",), ("omp_get_max_threads",)),
        ):
            with contextlib.suppress(Unreadable):
                ask()


@target("frame tables", *NATIVES, text=False)
def read_frame_table(data: bytes) -> None:
    """As if it were loaded: in its first pages addresses are positions."""
    base = 1 << 32
    table = FrameTable(lambda at, size: data[max(0, at - base) : max(0, at - base + size)], base, len(data))
    for address in range(base, base + len(data), max(64, len(data) // 64)):
        table.find(address)
        table.find_span(address)


@target("cores", *load("core.bin.gz"), text=False)
def read_core(data: bytes) -> None:
    with CoreFile(keep(data)) as core:
        assert core.executable is None or isinstance(core.executable, str)
        for row in core.rows[:8]:
            core.read(row.start, 64)
        core.read(core.sp_of(core.crashed), 4096)
        find_interrupted(core)
        assert core.missing_bytes >= 0


LOADER_CACHE = b"glibc-ld.so.cache1.1" + struct.pack("<I24x", 1) + struct.pack("<IIIIQ", 1, 72, 82, 0, 0)


@target("loader cache", LOADER_CACHE + b"libc.so.6\0/lib/libc.so.6\0", text=False)
def read_cache(data: bytes) -> None:
    read_loader_cache(keep(data))


# Arrays and wheels


def make_npy(dtype: Any, shape: tuple[int, ...] = (3,)) -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(shape, dtype), allow_pickle=True)
    return file.getvalue()


def make_npz(save: Callable[..., None]) -> bytes:
    file = io.BytesIO()
    save(file, a=np.zeros(3), b=np.arange(6).reshape(2, 3))
    return file.getvalue()


def make_wheel() -> bytes:
    file = io.BytesIO()
    metadata = "Metadata-Version: 2.1\nName: x\nVersion: 1\nRequires-Dist: numpy>=1\n"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {"x/libomp.so": NATIVES[0], "x/caller.so": NATIVES[1]}.items():
            archive.writestr(name, data)
        archive.writestr("x-1.dist-info/METADATA", metadata)
    return file.getvalue()


@target("npy", *map(make_npy, ("<f8", "O", "U7", [("a", "<i4"), ("b", "u1", (2,))])))
def read_npy(data: bytes) -> None:
    """As numpy reads it: of what both take they say the same, and we take what numpy does."""
    theirs, problem = read_with_numpy(data), None
    try:
        ours = read_header(io.BytesIO(data))
    except Unreadable as error:
        problem = error
    if theirs is None or min(theirs[0], default=0) < 0 or math.prod(theirs[0]) * theirs[2].itemsize >= 1 << 63:
        return  # of which numpy notices later that there is no such array
    if theirs[2].itemsize == 0:
        return  # and of an item without bytes it has its own idea
    assert problem is None, f"numpy reads {theirs}, and we say: {problem}"
    shape, fortran, dtype = theirs
    assert (ours.shape, ours.fortran_order, ours.pickled) == (shape, fortran, dtype.hasobject)
    assert ours.pickled or ours.item_bytes == dtype.itemsize, dtype


def read_with_numpy(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]] | None:
    file = io.BytesIO(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            version = np.lib.format.read_magic(file)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            return read(file, max_header_size=1 << 16)  # type: ignore[operator,no-any-return]
        except Exception:  # noqa: BLE001 (whatever numpy says to it)
            return None


@target("npz", make_npz(np.savez), make_npz(np.savez_compressed), text=False)
def read_npz(data: bytes) -> None:
    read_array_file(keep(data, "x.npz"))


@target("wheel", make_wheel(), text=False)
def read_wheel(data: bytes) -> None:
    read_wheels([keep(data, "x-1-py3-none-manylinux_2_17_x86_64.whl")])


@target("RECORD", b'x/libomp.so,sha256=47DEQ,10\n"x/a,b.so",sha256=47DEQ,3\n../../bin/x.dylib,,\nx/__init__.py,,\n')
def read_record(data: bytes) -> None:
    site = keep(data, "site/x-1.dist-info/RECORD").parents[1]
    for _, lines in read_records(str(site)):
        for line in lines:
            split_line(line)


# What is kept

KEPT = Journal((KeptLink("a/libomp.so", "b/libomp.so", "0" * 64, "1" * 64, 0o755, 5),))


@target("journal", msgspec.json.encode(KEPT))
def read_kept_links(data: bytes) -> None:
    read_journal(keep(data, f"environment/{JOURNAL}").parent)


@target("case", b'{"schema": "harness.case/1", "complete": false, "supervisor_pid": 7, "started_ns": 5, "node": "x"}\n')
def read_case(data: bytes) -> None:
    is_being_written(keep(data, "kept/case.json").parent)
