"""Whether one library can stand in for another: our answer and the loader's are the same."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.capture.files.formats.elf import Elf
from harness.capture.files.formats.symbol_versions import read_demand, read_offer

NAMES = (b"GOMP_", b"omp_")
RUNTIME = "int GOMP_one(void) { return 1; }\nint omp_two(void) { return 2; }\n"
CALLER = "int GOMP_one(void); int omp_two(void);\nint call(void) { return GOMP_one() + omp_two(); }\n"
# What stands in for the library that the caller was linked with, and what the caller misses then.
STAND_INS = {
    "the same": ("GOMP_1.0 { GOMP_one; };\nOMP_5.0 { omp_two; };\n", RUNTIME, []),
    "more": ("GOMP_1.0 { GOMP_one; };\nOMP_5.0 { omp_two; };\nOMP_6.0 { omp_three; };\n", RUNTIME, []),
    "no versions": (None, RUNTIME, ["GOMP_1.0", "GOMP_one@GOMP_1.0", "OMP_5.0", "omp_two@OMP_5.0"]),
    "an older one": ("GOMP_1.0 { GOMP_one; };\nOMP_4.5 { omp_two; };\n", RUNTIME, ["OMP_5.0", "omp_two@OMP_5.0"]),
    "a smaller one": ("GOMP_1.0 { GOMP_one; };\nOMP_5.0 { };\n", RUNTIME.partition("\n")[0], ["omp_two"]),
    "moved": (
        "GOMP_1.0 { GOMP_one; omp_two; };\nOMP_5.0 { };\n",
        RUNTIME,
        ["omp_two@OMP_5.0"],
    ),
}


def build(where: Path, name: str, source: str, versions: str | None, *flags: str) -> Path:
    where.mkdir(exist_ok=True)
    (where / f"{name}.c").write_text(source)
    if versions is not None:
        (where / f"{name}.map").write_text(versions)
        flags = (*flags, f"-Wl,--version-script={where / name}.map")
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-O1",
        "-o",
        f"lib{name}.so",
        f"{name}.c",
        f"-Wl,-soname,lib{name}.so",
        *flags,
    ]
    subprocess.run(command, cwd=where, check=True)
    return where / f"lib{name}.so"


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    where = tmp_path_factory.mktemp("versions") / "built"
    build(where, "run", RUNTIME, STAND_INS["the same"][0])
    return build(where, "call", CALLER, None, "-L.", "-lrun", "-Wl,-rpath,$ORIGIN", "-Wl,-z,now")


@pytest.mark.parametrize("kind", STAND_INS)
def test_what_a_stand_in_lacks_is_what_the_loader_refuses(caller: Path, kind: str, tmp_path: Path) -> None:
    versions, source, missing = STAND_INS[kind]
    stand_in = build(tmp_path / "here", "run", source, versions)
    shutil.copy(caller, tmp_path / "here")
    with Elf(caller) as elf:
        demand = read_demand(elf, ["librun.so"], ["GOMP_one", "omp_two"])
    with Elf(stand_in) as elf:
        lacks = read_offer(elf, NAMES).lacks(demand)

    load = subprocess.run(
        [sys.executable, "-c", f"import ctypes; assert ctypes.CDLL('{tmp_path}/here/libcall.so').call() == 3"],
        capture_output=True,
        check=False,
    )

    assert lacks == missing
    assert (load.returncode != 0) == bool(missing), load.stderr


def test_a_demand_names_the_versions_and_the_symbols(caller: Path) -> None:
    with Elf(caller) as elf:
        demand = read_demand(elf, ["librun.so"], ["GOMP_one", "omp_two", "omp_never_called"])
        other = read_demand(elf, ["another.so"], [])
    assert demand.symbols == {("GOMP_one", "GOMP_1.0"), ("omp_two", "OMP_5.0")}
    assert demand.versions == {"GOMP_1.0", "OMP_5.0"}
    assert (other.symbols, other.versions) == (set(), set())
