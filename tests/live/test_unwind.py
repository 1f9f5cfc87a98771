"""The stack as the images' own frame tables tell it, against gdb, on cores of real crashes."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.capture.cores.file import CoreFile
from harness.capture.files.images import list_images
from harness.capture.stacks.frames import Places
from harness.capture.stacks.walk.unwind import Memory, Walk, list_code, walk_stack
from tests.builders.lanes import INTERPRETERS
from tests.builders.literals import SCENARIOS, read_literals
from tests.zoo.driver import build

CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="cores of Linux"),
    pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY, reason="no core allowed"),
    pytest.mark.skipif(CORE_PATTERN.read_text()[:1] in "|@/", reason="core_pattern is no relative file"),
    pytest.mark.skipif(shutil.which("gdb") is None, reason="needs gdb"),
]
MOST = 300


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("libraries")


def crash(name: str, python: str, libraries: Path, folder: Path) -> Path:
    literals = read_literals(SCENARIOS / f"{name}.py")
    environment = {"PATH": "/usr/bin:/bin"}
    if source := literals.get("BUILD"):
        environment["ZOO_LIB"] = str(build(SCENARIOS / source, literals.get("BUILD_FLAGS", []), libraries))
    subprocess.run(
        [python, SCENARIOS / f"{name}.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2),
    )
    (core,) = folder.iterdir()
    return core


def walk(core: CoreFile, most: int) -> Walk:
    memory = Memory(core.read, Places(list_images(core.rows), core.read), list_code(core.rows))
    return walk_stack(core.crashed.registers, memory, core.machine, most)


def ask_gdb(core: CoreFile) -> list[int]:
    """Without the frames of inlined functions, which share their caller's address."""
    settings = ["-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load no"]
    ask = ["-ex", f'interpreter-exec mi "-stack-list-frames 0 {2 * MOST}"', core.executable or "", str(core.path)]
    said = subprocess.run(["gdb", *settings, *ask], capture_output=True, text=True, check=True).stdout
    addresses = [int(found, 16) for found in re.findall(r'addr="0x([0-9a-f]+)"', said)]
    return merge(addresses)


def merge(addresses: list[int]) -> list[int]:
    return [address for at, address in enumerate(addresses) if at == 0 or address != addresses[at - 1]]


def is_within(few: list[int], many: list[int]) -> bool:
    """In that order; gdb also shows functions that have left by a jump."""
    rest = iter(many)
    return all(address in rest for address in few)


@pytest.mark.parametrize("version", sorted(INTERPRETERS))
@pytest.mark.parametrize("name", ["native_string_at_null", "native_jump_to_null", "native_native_thread"])
def test_the_walk_ends_where_gdb_ends(name: str, version: str, libraries: Path, tmp_path: Path) -> None:
    with CoreFile(crash(name, INTERPRETERS[version], libraries, tmp_path)) as core:
        own, told = walk(core, MOST), ask_gdb(core)
    assert is_within(merge(list(own.addresses)), told)
    assert own.addresses[-1] == told[-1] and not own.broken and not own.deep


@pytest.mark.parametrize("name", ["native_stack_overflow_extension", "native_stack_overflow_main"])
def test_of_an_endless_recursion_the_innermost_frames_are_gdbs(name: str, libraries: Path, tmp_path: Path) -> None:
    with CoreFile(crash(name, sys.executable, libraries, tmp_path)) as core:
        own, told = walk(core, MOST), ask_gdb(core)
    assert own.deep and len(own.addresses) == MOST
    assert is_within(merge(list(own.addresses))[:50], told)


def test_where_no_call_has_led_the_walk_does_not_go_on(libraries: Path, tmp_path: Path) -> None:
    with CoreFile(crash("native_stray_jump", sys.executable, libraries, tmp_path)) as core:
        own, told = walk(core, MOST), ask_gdb(core)
    assert own.broken and len(own.addresses) == 1
    assert len(told) > 1  # gdb goes on into zlib


def test_beyond_a_handler_it_goes_on_where_the_signal_came(libraries: Path, tmp_path: Path) -> None:
    """A handler of SIGABRT that faults: the walk leads through its trampoline to whoever called abort()."""
    with CoreFile(crash("memory_fault_after_damage", sys.executable, libraries, tmp_path)) as core:
        own, told = walk(core, MOST), ask_gdb(core)
    assert is_within(merge(list(own.addresses)), told)
    assert own.addresses[-1] == told[-1] and not own.broken
