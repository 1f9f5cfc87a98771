"""The C files: clean under the sanitizers, the same for every platform, and refused when they do not fit."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import lief
import pytest

from harness import native
from harness.errors import HarnessError

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "native").glob("*.c"))
DRIVER = Path(__file__).with_name("relay_driver.c")
TARGETS = ("x86_64-linux-gnu.2.17", "aarch64-linux-gnu.2.17", "x86_64-linux-musl", "aarch64-macos", "x86_64-macos")
STRICT = ["-std=gnu11", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror"]


@pytest.fixture(scope="module", params=["plain", "address,undefined"])
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The relay in a small program of its own, with and without sanitizers."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    program = tmp_path_factory.mktemp("driver") / "driver"
    sanitize = [] if request.param == "plain" else [f"-fsanitize={request.param}", "-fno-sanitize-recover=all"]
    subprocess.run(
        ["gcc", *STRICT, "-g", *sanitize, "-iquote", ROOT / "native", "-o", program, DRIVER, *SOURCES], check=True
    )
    return program


@pytest.mark.parametrize("size", [0, 1, 4096, 65536, 300_001, 5_000_000])
def test_relay_delivers_every_byte_and_keeps_head_and_tail(driver: Path, size: int, tmp_path: Path) -> None:
    data = hashlib.shake_256(b"harness").digest(size)
    head, tail = 10_000, 20_000
    result = subprocess.run([driver, tmp_path, str(head), str(tail)], input=data, capture_output=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout == data
    kept = (tmp_path / "stdout.log").read_bytes()
    assert kept == data[:head]
    files = [tmp_path / "stdout.tail.old", tmp_path / "stdout.tail"]
    end = b"".join(file.read_bytes() for file in files if file.exists())
    assert end == (data[-len(end) :] if end else b"")
    assert len(end) >= min(tail, size - len(kept))
    assert len(end) <= 2 * tail


def test_relay_goes_on_when_the_case_directory_is_gone(driver: Path, tmp_path: Path) -> None:
    case = tmp_path / "case"
    case.mkdir()
    command = [driver, case, "10", "10"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"REMOVE_CASE": "1", **os.environ}
    )
    out, _ = process.communicate(b"x" * 100_000, timeout=60)
    assert (process.returncode, out) == (0, b"x" * 100_000)


@pytest.mark.parametrize("target", TARGETS)
def test_every_file_compiles_for_every_platform(target: str, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    for source in SOURCES:
        command = [
            sys.executable,
            "-m",
            "ziglang",
            "cc",
            "-target",
            target,
            *STRICT,
            "-c",
            "-o",
            tmp_path / "x.o",
            source,
        ]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("target", [target for target in TARGETS if target.endswith("macos")])
def test_the_library_of_macos_links_and_exports_what_the_header_says(target: str, tmp_path: Path) -> None:
    """Linked for real by zig, against Apple's list of what libSystem has; read by lief. Nothing here can run it."""
    pytest.importorskip("ziglang")
    library = tmp_path / "libharness.dylib"
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", target]
    subprocess.run([*zig, *STRICT, "-shared", "-fvisibility=hidden", "-o", library, *SOURCES], check=True)
    fat = lief.MachO.parse(str(library))
    assert fat is not None
    binary = fat.at(0)
    exported = {str(symbol.name).removeprefix("_") for symbol in binary.exported_symbols}
    header = (ROOT / "native" / "harness.h").read_text()
    assert {name for name in exported if name.startswith("harness_")} == set(
        re.findall(r"^HARNESS_API \w+ (\w+)\(", header, flags=re.MULTILINE)
    )
    assert not exported & {"sigaction", "signal", "pthread_create"}  # dyld replaces them by its own list
    (interposed,) = [section for section in binary.sections if section.name == "__interpose"]
    assert (interposed.segment_name, interposed.size) == ("__DATA", 3 * 2 * 8)
    assert [str(used.name) for used in binary.libraries][1:] == ["/usr/lib/libSystem.B.dylib"]


def test_a_library_of_another_header_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Built for real from a changed header: one struct is larger."""
    changed = tmp_path / "native"
    shutil.copytree(ROOT / "native", changed)
    header = changed / "harness.h"
    header.write_text(header.read_text().replace("    uint32_t uid;\n", "    uint32_t uid;\n    uint32_t more;\n"))
    library = tmp_path / "libharness.so"
    subprocess.run(["gcc", "-fPIC", "-shared", "-o", library, *changed.glob("*.c")], check=True)
    monkeypatch.setattr(native, "LIBRARY", library)
    native.load.cache_clear()
    try:
        with pytest.raises(HarnessError, match="another version of its header"):
            native.load()
    finally:
        native.load.cache_clear()
