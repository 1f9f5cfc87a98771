"""ELF images from files and from memory, against what binutils say, and torn or hostile ones."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import struct
import subprocess
import sysconfig
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.capture.files.binaries import OPENMP_NAMES
from harness.capture.files.formats.elf import Elf
from harness.capture.files.images import read_images
from tests.builders.natives import build

SITE = Path(sysconfig.get_path("platlib"))
REAL = [
    "torch/lib/libtorch_cpu.so",
    "torch/lib/libgomp.so.1",
    "faiss/libfaiss.so",
    "faiss_cpu.libs/libopenblaso*.so",
    "numpy/_core/_multiarray_umath*.so",
    "sklearn/cluster/_k_means_lloyd*.so",
    "../../libiomp5.so",
]
needs_binutils = pytest.mark.skipif(
    shutil.which("readelf") is None or shutil.which("nm") is None, reason="no binutils; next: apt-get install binutils"
)


def real_file(pattern: str) -> Path:
    found = sorted(SITE.glob(pattern)) if ".." not in pattern else [p for p in [SITE / pattern] if p.exists()]
    if not found:
        pytest.skip(f"{pattern} is not installed; next: make .venv/dev.stamp")
    return found[0]


def run(*command: object) -> str:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True, timeout=60).stdout


@needs_binutils
@pytest.mark.parametrize("pattern", REAL)
def test_names_are_those_that_readelf_prints(pattern: str) -> None:
    path = real_file(pattern)
    said = run("readelf", "-dW", path)
    with Elf(path) as elf:
        assert elf.needed() == re.findall(r"\(NEEDED\).*\[(.*)\]", said)
        assert [elf.soname()] == (re.findall(r"\(SONAME\).*\[(.*)\]", said) or [None])
        assert ":".join(elf.rpath()) == "".join(re.findall(r"\(RPATH\).*\[(.*)\]", said))
        assert ":".join(elf.runpath()) == "".join(re.findall(r"\(RUNPATH\).*\[(.*)\]", said))


@needs_binutils
@pytest.mark.parametrize("pattern", REAL)
def test_symbols_are_those_that_nm_prints(pattern: str) -> None:
    path = real_file(pattern)
    rows = [line.split()[-2:] for line in run("nm", "-D", "--without-symbol-versions", path).splitlines()]
    wanted = [(kind, name) for kind, name in rows if name.encode().startswith(OPENMP_NAMES)]
    with Elf(path) as elf:
        symbols = elf.symbols(OPENMP_NAMES)
        assert sorted(s.name for s in symbols if s.defined) == sorted(n for kind, n in wanted if kind not in "Uwv")
        assert sorted(s.name for s in symbols if not s.defined) == sorted(n for kind, n in wanted if kind in "Uwv")
        assert {s.name for s in symbols if s.weak and not s.defined} == {n for kind, n in wanted if kind in "wv"}
        assert len(elf.symbols((b"",))) - 1 == len(rows)  # the first row of the table is empty


@needs_binutils
@pytest.mark.parametrize("pattern", ["torch/lib/libtorch_cpu.so", "faiss/libfaiss.so"])
def test_slots_are_those_that_readelf_prints(pattern: str) -> None:
    path = real_file(pattern)
    rows = re.findall(r"^([0-9a-f]{16}) .*? ((?:omp_|GOMP_)\w+)@", run("readelf", "-rW", path), re.M)
    with Elf(path) as elf:
        slots = elf.slots(symbol for symbol in elf.symbols(OPENMP_NAMES) if not symbol.defined)
    assert slots
    assert sorted((f"{slot.address:016x}", slot.name) for slot in slots) == sorted(rows)


def test_a_loaded_image_says_the_same_as_its_file() -> None:
    """And the slot of a symbol that was bound at once holds the address that the loader gives."""
    runtime, caller = build("elf")
    ctypes.CDLL(str(runtime))
    library = ctypes.CDLL(str(caller), mode=os.RTLD_NOW)
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        image = next(image for image in read_images(os.getpid()) if image.path == str(caller))
        base, end = int(image.base, 16), int(image.end, 16)
        loaded = Elf.of_memory(lambda address, size: os.pread(memory, size, address), base, end - base)
        with Elf(caller) as file:
            assert loaded.needed() == file.needed() and "libomp.so" in file.needed()
            assert loaded.symbols((b"",)) == file.symbols((b"",))
            assert loaded.slots(loaded.symbols(OPENMP_NAMES)) == file.slots(file.symbols(OPENMP_NAMES))
            assert loaded.sections() == [] and loaded.section(".comment") == b""
        mine = next(symbol for symbol in loaded.symbols((b"PyInit_",)))
        assert loaded.bias + mine.address == ctypes.cast(library.PyInit_caller, ctypes.c_void_p).value
        slot = next(s for s in loaded.slots(loaded.symbols(OPENMP_NAMES)) if s.name == "omp_get_max_threads")
        (bound,) = struct.unpack("<Q", loaded.content(slot.address, 8))
        everywhere = ctypes.CDLL(None)  # a runtime that an earlier test loaded for all comes first
        first = everywhere if hasattr(everywhere, "omp_get_max_threads") else ctypes.CDLL(str(runtime))
        assert bound == ctypes.cast(first.omp_get_max_threads, ctypes.c_void_p).value
    finally:
        os.close(memory)


def test_the_function_at_an_offset_is_the_one_that_holds_it() -> None:
    with Elf(build("elf")[0]) as elf:
        symbol = next(iter(elf.symbols((b"omp_get_max_threads",))))
        assert elf.function_at(symbol.address - elf.first_address) == "omp_get_max_threads"
        assert elf.function_at(1 << 40) is None


def test_a_big_library_takes_no_time_to_speak_of() -> None:
    path = real_file("torch/lib/libtorch_cpu.so")
    started = time.perf_counter()
    with Elf(path) as elf:
        assert elf.slots(elf.symbols(OPENMP_NAMES))
    assert time.perf_counter() - started < 5  # 0.08 s; here only to notice a loop over all its bytes


def test_what_is_no_elf_file_is_refused(tmp_path: Path) -> None:
    for content in (
        b"",
        b"\x7fELF",
        b"#!/bin/sh\n" * 10,
        b"\x7fELF\x01\x01" + bytes(100),
        b"\x7fELF\x02\x02" + bytes(100),
    ):
        path = tmp_path / "x.so"
        path.write_bytes(content)
        with pytest.raises(ValueError):
            Elf(path)


def read_everything(data: bytes) -> None:
    elf = Elf(data)
    for question in (
        elf.needed,
        elf.soname,
        elf.rpath,
        elf.runpath,
        elf.sections,
        lambda: elf.slots(elf.symbols((b"",))),
        lambda: elf.function_at(0x1000),
        lambda: sum(map(len, elf.constants())),
        lambda: elf.section(".comment"),
        lambda: elf.span,
    ):
        try:
            question()
        except ValueError:
            pass


MUTATIONS = st.lists(st.tuples(st.integers(0, 4095), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, 8, 64])), max_size=8)


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(changes=MUTATIONS, cut=st.integers(0, 4096) | st.none(), wide=st.booleans())
def test_a_torn_or_hostile_file_gives_an_answer_or_a_value_error(
    changes: list[tuple[int, int]], cut: int | None, wide: bool
) -> None:
    """`wide`: eight bytes at a time, which is how sizes and offsets become huge."""
    data = bytearray(build("elf")[1].read_bytes())
    for at, value in changes:
        at %= len(data)
        data[at : at + (8 if wide else 1)] = bytes([value]) * (8 if wide else 1)
    try:
        read_everything(bytes(data[:cut]))
    except ValueError:
        pass


@settings(max_examples=100)
@given(size=st.integers(0, 20_000), base=st.sampled_from([0x1000, 0x7F0000000000]))
def test_memory_that_ends_early_or_holds_noise_is_a_value_error_or_an_answer(size: int, base: int) -> None:
    data = build("elf")[1].read_bytes()
    try:
        elf = Elf.of_memory(lambda address, count: data[address - base : address - base + count], base, size)
        elf.slots(elf.symbols((b"",)))
    except ValueError:
        pass
