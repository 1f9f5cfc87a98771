"""What a native file is, calls and holds: real runtimes under other names, three formats, and hostile files."""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
import sysconfig
import tracemalloc
from pathlib import Path

import lief
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.capture.files.binaries import OPENMP_NAMES, Binary, RuntimeCopy, is_native, read_binaries
from harness.capture.files.formats.content import open_content
from harness.capture.files.formats.macho import images_of
from harness.capture.files.formats.pe import Pe
from tests.builders.natives import FORMATS, build

SITE = Path(sysconfig.get_path("platlib"))
INTEL = Path(sysconfig.get_path("data"), "lib", "libiomp5.so")
INTEL_STATIC = INTEL.with_suffix(".a")
DEBIAN = Path("/usr/lib/llvm-14/lib/libomp.so.5")
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc; next: apt-get install gcc")


def read_one(source: Path | bytes) -> Binary:
    (binary,) = read_binaries(source)
    return binary


def need(path: Path, command: str) -> Path:
    if not path.exists():
        pytest.skip(f"no {path.name}; next: {command}")
    return path


@pytest.mark.parametrize("kind", FORMATS)
def test_a_runtime_is_known_by_its_content_and_a_caller_by_what_it_lacks(kind: str) -> None:
    runtime, caller = map(read_one, build(kind))
    assert runtime.format == caller.format == kind
    assert runtime.runtime == RuntimeCopy("llvm", "5.0.20140926 (Clang 14.0)", static=False)
    assert runtime.defines == ("__kmpc_fork_call", "omp_get_max_threads") and not runtime.calls
    assert caller.runtime is None and not caller.defines
    (call,) = caller.calls
    assert call.symbols == runtime.defines and not call.weak
    assert call.library == {"elf": None, "macho": "@rpath/libomp.dylib", "pe": "omp.dll"}[kind]
    assert caller.rpaths == {"elf": ("$ORIGIN",), "macho": ("@loader_path",), "pe": ()}[kind]
    assert any("omp" in name for name in caller.needed)


@pytest.mark.parametrize("kind", FORMATS)
def test_bytes_and_an_open_file_give_the_same_as_the_file(kind: str) -> None:
    for path in build(kind):
        data = path.read_bytes()
        assert read_binaries(data) == read_binaries(io.BytesIO(data)) == read_binaries(path)
        assert is_native(data)


def test_no_native_file_is_said_to_be_none(tmp_path: Path) -> None:
    java = b"\xca\xfe\xba\xbe" + struct.pack(">HH", 0, 52) + bytes(64)
    for data in (b"", b"MZ", b"\x7fELF", b"import os\n", java, b"\xcf\xfa\xed\xfe", bytes(4096)):
        with pytest.raises(ValueError):
            read_binaries(data)
    with pytest.raises(OSError):
        read_binaries(tmp_path / "missing.so")


def test_gnu_runtimes_of_real_wheels() -> None:
    for pattern in ("torch/lib/libgomp.so.1", "faiss_cpu.libs/libgomp-*", "scikit_learn.libs/libgomp-*"):
        for path in SITE.glob(pattern):
            found = read_one(path).runtime
            assert found is not None and (found.family, found.static) == ("gnu", False)
            assert found.version is not None and found.version.startswith("GOMP_5.0 (GCC 8.")


def test_intel_runtime_its_stubs_and_its_debugger_plugin(tmp_path: Path) -> None:
    need(INTEL, "pip install intel-openmp")
    found = read_one(INTEL).runtime
    assert found is not None and (found.family, found.static) == ("intel", False)
    assert read_one(INTEL.with_name("libiompstubs5.so")).runtime is None
    assert read_one(INTEL.with_name("libiomp5_db.so")).runtime is None


def test_llvm_runtime_of_debian() -> None:
    found = read_one(need(DEBIAN, "apt-get install libomp5-14")).runtime
    assert found == RuntimeCopy("llvm", "5.0.20140926 (Clang 14.0)", static=False)


@pytest.mark.parametrize("original", [INTEL, DEBIAN, SITE / "torch/lib/libgomp.so.1"], ids=lambda path: path.name)
def test_a_renamed_and_stripped_copy_is_known(original: Path, tmp_path: Path) -> None:
    copy = tmp_path / "harmless.so"
    shutil.copy(need(original, "make .venv/dev.stamp"), copy)
    subprocess.run(
        ["strip", "--strip-all", "-R", ".comment", "-R", ".gnu_debuglink", str(copy)], check=True, timeout=30
    )
    before, after = read_one(original).runtime, read_one(copy).runtime
    assert before is not None and after is not None
    assert (after.family, after.static) == (before.family, False)


def test_without_section_headers_it_is_still_known(tmp_path: Path) -> None:
    data = bytearray(need(INTEL, "pip install intel-openmp").read_bytes())
    struct.pack_into("<Q", data, 40, 0)  # e_shoff
    struct.pack_into("<HH", data, 60, 0, 0)
    assert read_one(bytes(data)).runtime == read_one(INTEL).runtime


WORK = """
int PyInit_work(int n) {
    int sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < n; i++) sum += i;
    return sum;
}
#ifdef PROGRAM
int main(int count, char **words) { (void)words; return PyInit_work(count); }
#endif
"""


@needs_gcc
@pytest.mark.parametrize("hidden", [True, False])
def test_a_static_copy_inside_an_extension_module_is_found(hidden: bool, tmp_path: Path) -> None:
    need(INTEL_STATIC, "pip install intel-openmp")
    (tmp_path / "work.c").write_text(WORK)
    words = ["-s", "-Wl,--exclude-libs,ALL"] if hidden else []
    command = ["gcc", "-shared", "-fPIC", "-fopenmp", "-c", "-o", "work.o", "work.c"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=30)
    command = ["gcc", "-shared", "-o", "work.so", "work.o", str(INTEL_STATIC), "-lpthread", "-ldl", "-lm", *words]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=30)
    binary = read_one(tmp_path / "work.so")
    assert binary.runtime is not None and (binary.runtime.family, binary.runtime.static) == ("intel", True)
    assert not binary.calls and bool(binary.defines) != hidden


@needs_gcc
def test_a_static_libgomp_inside_a_program_is_found(tmp_path: Path) -> None:
    """Debian's libgomp.a is not made for shared libraries."""
    archive = subprocess.run(["gcc", "-print-file-name=libgomp.a"], capture_output=True, text=True, timeout=30)
    (tmp_path / "work.c").write_text(WORK)
    command = ["gcc", "-DPROGRAM", "-fopenmp", "-c", "-o", "work.o", "work.c"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=30)
    command = ["gcc", "-s", "-o", "work", "work.o", archive.stdout.strip(), "-lpthread", "-ldl"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=30)
    found = read_one(tmp_path / "work").runtime
    assert found is not None and (found.family, found.static) == ("gnu", True)


def test_naming_a_runtime_is_not_being_one(tmp_path: Path) -> None:
    """harness itself has the words of every runtime in its texts; and a file's name proves nothing."""
    path = tmp_path / "libgomp.so.1"
    shutil.copy(build("elf")[1], path)
    assert read_one(path).runtime is None


def test_blas_of_real_wheels() -> None:
    kinds = {}
    for pattern in (
        "numpy.libs/*openblas*",
        "scipy.libs/*openblas*",
        "faiss_cpu.libs/*openblas*",
        "torch/lib/libtorch_cpu.so",
    ):
        for path in SITE.glob(pattern):
            (blas,) = read_one(path).blas
            kinds[pattern.partition("/")[0]] = (blas.kind, blas.threading)
            assert blas.kind == "mkl" or (blas.config or "").startswith("OpenBLAS 0.3.")
    if not kinds:
        pytest.skip("none is installed; next: make .venv/dev.stamp")
    expected = {
        "numpy.libs": ("openblas", "pthreads"),
        "scipy.libs": ("openblas", "pthreads"),
        "faiss_cpu.libs": ("openblas", "openmp"),
        "torch": ("mkl", "openmp"),
    }
    assert kinds == {name: expected[name] for name in kinds}


def test_a_weak_call_is_said_to_be_weak() -> None:
    """OpenBLAS with its own threads asks whether it runs inside of OpenMP, if there is any."""
    found = sorted(SITE.glob("numpy.libs/*openblas*"))
    if not found:
        pytest.skip("no numpy.libs; next: make .venv/dev.stamp")
    (call,) = read_one(found[0]).calls
    assert call.weak and call.symbols == ("omp_in_parallel",)


def universal(*slices: bytes) -> bytes:
    """mach-o/fat.h, as `lipo -create` writes it."""
    head = struct.pack(">II", 0xCAFEBABE, len(slices))
    at = 4096
    rows, body = b"", b""
    for data in slices:
        rows += struct.pack(">IIIII", *struct.unpack_from("<II", data, 4), at, len(data), 12)
        padded = data + bytes(-len(data) % 4096)
        at, body = at + len(padded), body + padded
    return (head + rows).ljust(4096, b"\0") + body


def test_a_universal_file_holds_one_image_for_each_machine() -> None:
    runtime = build("macho")[0].read_bytes()
    other = bytearray(runtime)
    struct.pack_into("<I", other, 4, 0x01000007)
    first, second = read_binaries(universal(runtime, bytes(other)))
    assert (first.machine, second.machine) == ("arm64", "x86_64")
    assert first.runtime == second.runtime == read_one(runtime).runtime
    nested = universal(universal(runtime))
    with pytest.raises(ValueError):
        read_binaries(nested)


def test_mach_o_is_read_as_lief_reads_it() -> None:
    for path in build("macho"):
        theirs = lief.MachO.parse(str(path)).at(0)
        (mine,) = images_of(open_content(path))
        assert mine.needed == [library.name for library in theirs.libraries if library.name != mine.install_name]
        assert mine.rpaths == [rpath.path for rpath in theirs.rpaths]
        imported = {s.name[1:] for s in theirs.imported_symbols if s.name[1:].encode().startswith(OPENMP_NAMES)}
        assert {symbol.name for symbol in mine.imports(OPENMP_NAMES)} == imported
        exported = {s.name[1:] for s in theirs.exported_symbols if s.name[1:].encode().startswith(OPENMP_NAMES)}
        assert set(mine.exports(OPENMP_NAMES)) == exported


def test_pe_is_read_as_lief_reads_it() -> None:
    for path in build("pe"):
        theirs, mine = lief.PE.parse(str(path)), Pe(open_content(path))
        assert mine.needed == [library.name for library in theirs.imports]
        entries = {(entry.name, library.name) for library in theirs.imports for entry in library.entries}
        assert {(symbol.name, symbol.library) for symbol in mine.imports((b"",))} == entries
        assert mine.exports((b"",)) == [entry.name for entry in theirs.get_export().entries]


CHANGES = st.lists(st.tuples(st.integers(0, 1 << 20), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, 8, 64])), max_size=8)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(changes=CHANGES, cut=st.floats(0, 1) | st.none(), width=st.sampled_from([1, 4, 8]))
def test_a_torn_or_hostile_file_gives_a_result_or_a_value_error(
    kind: str, which: int, changes: list[tuple[int, int]], cut: float | None, width: int
) -> None:
    """Most changes go where the tables are: the first kilobytes, whatever the length of the file."""
    data = bytearray(build(kind)[which].read_bytes())
    for at, value in changes:
        at %= min(len(data), 2048) if at & 1 else len(data)
        data[at : at + width] = bytes([value]) * width
    if cut is not None:
        del data[int(len(data) * cut) :]
    try:
        read_binaries(bytes(data))
    except ValueError:
        pass


@pytest.mark.parametrize("kind", FORMATS)
def test_huge_counts_and_sizes_cost_no_memory(kind: str) -> None:
    """Every aligned word of the headers in turn becomes as large as it can be."""
    original = build(kind)[1].read_bytes()
    tracemalloc.start()
    for at in range(0, 1024, 4):
        data = bytearray(original)
        data[at : at + 4] = b"\xff\xff\xff\x7f"
        try:
            read_binaries(bytes(data))
        except ValueError:
            pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 << 20
