"""The list of loaded images and of what their OpenMP calls are bound to, against the loader, the kernel and readelf."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.capture.openmp.loaded import list_loaded

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("images_driver.c")
ARM_ROOT = Path("/usr/aarch64-linux-gnu")
LIBOMP = Path("/usr/lib/llvm-14/lib/libomp.so.5")
CALLER = """
extern int omp_get_max_threads(void);
extern int omp_in_parallel(void);
extern int omp_never_defined(void) __attribute__((weak));
extern int kmp_get_blocktime(void);
int (*kept)(void) = omp_in_parallel;
int rarely(void) { return omp_never_defined ? omp_never_defined() : kmp_get_blocktime(); }
int touch(void) { return omp_get_max_threads(); }
"""


class Told(NamedTuple):
    """What the driver says: before and after the calls."""

    images: list[tuple[int, int, int, str]]
    before: dict[tuple[str, int], list[str]]
    after: dict[tuple[str, int], list[str]]
    initialised: list[str]
    maps: str


@pytest.fixture(scope="module", params=["plain", "address,undefined"])
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None or not LIBOMP.exists():
        pytest.skip("needs gcc and libomp5-14")
    program = tmp_path_factory.mktemp("images") / "driver"
    sanitize = [] if request.param == "plain" else [f"-fsanitize={request.param}", "-fno-sanitize-recover=all"]
    strict = ["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", *sanitize]
    sources = [DRIVER, ROOT / "native/images.c"]
    subprocess.run(["gcc", *strict, "-I", ROOT / "native", "-o", program, *sources, "-ldl"], check=True)
    return program


@pytest.fixture(scope="module", params=["gnu", "sysv", "both"])
def caller(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bound at the first call, with each kind of hash table: without GNU's it is not known how many are undefined."""
    folder = tmp_path_factory.mktemp("caller")
    source = folder / "caller.c"
    source.write_text(CALLER)
    library = folder / "caller.so"
    command = ["gcc", "-shared", "-fPIC", "-o", library, source, LIBOMP, "-Wl,-z,lazy"]
    subprocess.run([*command, f"-Wl,--hash-style={request.param}"], check=True)
    return library


def ask(driver: Path, *libraries: Path) -> Told:
    output = subprocess.run([driver, *libraries], capture_output=True, text=True, timeout=60, check=True).stdout
    first, second, maps = output.split("end\n")
    images = [line.split(maxsplit=4)[1:] for line in second.splitlines() if line.startswith("image ")]
    return Told(
        [(int(base, 16), int(size), int(defines), path) for base, size, defines, path in images],
        read_calls(first),
        read_calls(second),
        re.findall(r"^initialised (\d)", output, re.M),
        maps,
    )


def read_calls(text: str) -> dict[tuple[str, int], list[str]]:
    """By name and slot: value, lazy, caller, target, what dladdr says."""
    rows = (line.split() for line in text.splitlines() if line.startswith("call "))
    return {(name, int(slot, 16)): [value, lazy, *rest] for _, slot, value, lazy, name, *rest in rows}


def read_relocations(library: Path) -> set[tuple[str, int]]:
    """The slots of undefined OpenMP symbols, as readelf sees them."""
    text = subprocess.run(["readelf", "-rW", library], capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^([0-9a-f]+) +[0-9a-f]+ R_\w+ +0{16} (\w+)(?:@\S+)? \+ 0$", text, re.M)
    return {(name, int(at, 16)) for at, name in rows if name.startswith(("omp_", "GOMP_", "__kmpc_", "kmp_"))}


def test_every_slot_is_found_and_leads_where_the_loader_says(driver: Path, caller: Path) -> None:
    told = ask(driver, caller)
    base = next(base for base, _, _, path in told.images if path == str(caller))

    assert {(name, slot - base) for name, slot in told.after} == read_relocations(caller)
    for value, lazy, whose, _, target, dladdr in told.after.values():
        assert whose == str(caller)
        assert target == dladdr
        assert lazy == str(int(target == whose))
        assert (int(value, 16) == 0) == (target == "nothing")


def test_a_call_is_lazy_until_it_is_made(driver: Path, caller: Path) -> None:
    told = ask(driver, caller)

    def state(calls: dict[tuple[str, int], list[str]], wanted: str) -> set[str]:
        rows = [row for (name, _), row in calls.items() if name == wanted]
        return {"lazy" if lazy == "1" else Path(target).name for _, lazy, _, _, target, _ in rows}

    assert state(told.before, "omp_get_max_threads") == {"lazy"}
    assert state(told.after, "omp_get_max_threads") == {LIBOMP.name}
    assert state(told.after, "kmp_get_blocktime") == {"lazy"}
    assert state(told.before, "omp_in_parallel") == {LIBOMP.name}  # its address is kept in data: never lazy
    assert state(told.before, "omp_never_defined") <= {"nothing"}


def test_looking_initialises_nothing(driver: Path, caller: Path) -> None:
    assert ask(driver, caller).initialised == ["0", "1"]


def test_images_are_where_the_kernel_has_mapped_them(driver: Path, caller: Path) -> None:
    told = ask(driver, caller)
    starts = {
        (int(start, 16), path)
        for start, offset, path in re.findall(r"^([0-9a-f]+)-\S+ \S+ (\w+) \S+ \d+ +(/\S+)$", told.maps, re.M)
        if int(offset, 16) == 0
    }
    named = {(base, str(Path(path).resolve())) for base, _, _, path in told.images if path.startswith("/")}
    assert named <= starts
    assert {path for _, path in named} >= {str(caller), str(LIBOMP.resolve()), str(driver)}
    ends = {path: int(end, 16) for end, path in re.findall(r"^\w+-(\w+) .* (/\S+)$", told.maps, re.M)}
    for base, size, _, path in told.images:
        if path.startswith("/"):
            assert base + size > ends[str(Path(path).resolve())] - 4096


def test_a_runtime_is_known_by_what_it_defines(driver: Path, caller: Path, tmp_path: Path) -> None:
    renamed = tmp_path / "libplain.so"
    subprocess.run(["strip", "-o", renamed, LIBOMP], check=True)
    gnu = subprocess.run(["gcc", "-print-file-name=libgomp.so.1"], capture_output=True, text=True, check=True)
    told = ask(driver, caller, renamed, Path(gnu.stdout.strip()))
    defines = {Path(path).name: flags for _, _, flags, path in told.images if flags}
    assert defines == {"libomp.so.5": 3, "libplain.so": 3, "libgomp.so.1": 2}


def test_own_process_is_listed_through_cffi() -> None:
    listing = list_loaded()
    mapped = Path("/proc/self/maps").read_text()
    assert all(f"{image.base:x}-" in mapped for image in listing.images if image.path.startswith("/"))
    assert any(image.path.endswith("/libharness.so") for image in listing.images)
    assert list_loaded(calls=False) == (listing.images, [])


def test_a_small_room_is_made_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list_loaded()
    monkeypatch.setattr("harness.capture.openmp.loaded._ROOM", (1, 1, 1))
    assert list_loaded() == whole


def test_rows_of_a_relocation_table_are_found_by_symbol() -> None:
    from harness.capture.files.layout import find_rows

    def table(symbols: Iterable[int]) -> bytes:
        return b"".join(bytes(12) + number.to_bytes(4, "little") + bytes(8) for number in symbols)

    assert list(find_rows(table([0, 7, 3, 7, 9, 5]), {7, 3})) == [(1, 7), (2, 3), (3, 7)]
    assert list(find_rows(table([1, 2]), {7})) == []
    assert list(find_rows(b"", {7})) == []


def test_on_arm_the_same_is_found(tmp_path: Path) -> None:
    """Compiled by zig, run by qemu's user mode with Debian's arm64 C library."""
    pytest.importorskip("ziglang")
    qemu = shutil.which("qemu-aarch64")
    if qemu is None or not ARM_ROOT.exists():
        pytest.skip("needs qemu-user and libc6-arm64-cross; next: apt-get install qemu-user libc6-arm64-cross")
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu.2.17", "-I", str(ROOT / "native")]
    names = ("omp_get_max_threads", "omp_in_parallel", "kmp_get_blocktime", "__kmpc_fork_call")
    (tmp_path / "runtime.c").write_text("".join(f"int {name}(void) {{ return 1; }}\n" for name in names))
    (tmp_path / "caller.c").write_text(CALLER)
    runtime, caller, program = tmp_path / "libruntime.so", tmp_path / "caller.so", tmp_path / "driver"
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", runtime, tmp_path / "runtime.c"], check=True)
    library = ["-shared", "-fPIC", "-o", caller, tmp_path / "caller.c", runtime, "-Wl,-z,lazy"]
    subprocess.run([*compiler, *library, "-Wl,-rpath,$ORIGIN"], check=True)
    subprocess.run([*compiler, "-o", program, DRIVER, ROOT / "native/images.c", "-ldl"], check=True)

    command = [qemu, "-L", str(ARM_ROOT), str(program), str(caller)]
    output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    before, after, _ = output.split("end\n")
    targets = {name: (Path(row[4]).name, row[5]) for (name, _), row in read_calls(after).items()}
    assert targets["omp_get_max_threads"] == (runtime.name, str(runtime))
    assert targets["omp_in_parallel"] == (runtime.name, str(runtime))
    assert targets["kmp_get_blocktime"] == (caller.name, str(caller))  # not called yet
    assert {row[1] for (name, _), row in read_calls(before).items() if name == "omp_get_max_threads"} == {"1"}
    assert re.search(r"^image \S+ \d+ 1 \S+/libruntime\.so$", after, re.M)
