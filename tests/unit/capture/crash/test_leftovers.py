"""What a killed harness has left in the temporary folder is removed, and nothing else, however alike it looks."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.capture.crash.stale_directories import remove_leftovers
from harness.evidence.case import read_start

LONG_AGO = (1_000_000_000, 1_000_000_000)


@pytest.fixture(scope="module")
def gone() -> str:
    """Number and start of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        start = read_start(process.pid)
    return f"{process.pid}-{start or 7}"


@pytest.fixture
def place() -> Iterator[Path]:
    """A socket's path has 107 bytes, of which pytest's own folders take most."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder:
        yield Path(folder)


def make(folder: Path, name: str, *, listens: bool = False) -> tuple[Path, socket.socket]:
    directory = folder / name
    directory.mkdir(mode=0o700)
    end = socket.socket(socket.AF_UNIX)
    end.bind(str(directory / "link"))
    if listens:
        end.listen()
    else:
        end.close()
    os.utime(directory, LONG_AGO)
    return directory, end


def test_of_one_that_is_gone(place: Path, gone: str) -> None:
    directory, _ = make(place, f"harness-{gone}-0123abcd")
    (directory / "libharness.so").symlink_to("/usr/lib/libharness.so")
    os.utime(directory, LONG_AGO)
    reused, _ = make(place, f"harness-{os.getpid()}-1-0123abcd")
    remove_leftovers(place)
    assert not directory.exists() and not reused.exists()


def test_of_one_that_lives_or_is_heard_or_is_young(place: Path, gone: str) -> None:
    living, _ = make(place, f"harness-{os.getpid()}-{read_start(os.getpid())}-0123abcd")
    heard, end = make(place, f"harness-{gone}-0123abcd", listens=True)
    young = place / f"harness-{gone}-4567abcd"
    young.mkdir(mode=0o700)
    with end:
        remove_leftovers(place)
    assert living.exists() and heard.exists() and young.exists()


def test_what_is_not_ours_for_certain_stays(place: Path, gone: str) -> None:
    (place / "kept").mkdir()
    make(place, f"harness-{gone}-0000000a")[0].chmod(0o755)
    full, _ = make(place, f"harness-{gone}-0000000b")
    (full / "train.py").touch()
    os.utime(full, LONG_AGO)
    (place / f"harness-{gone}-0000000c").symlink_to(make(place / "kept", f"harness-{gone}-0000000d")[0])
    (place / f"harness-{gone}-0000000e").touch(mode=0o700)
    make(place, f"harness-cases-{gone}-0000000f")
    make(place, f"harness-{gone}-xyz")
    if os.getuid() == 0:
        os.chown(make(place, f"harness-{gone}-00000010")[0], 65534, 65534)
    before = sorted(path for path in place.rglob("*"))
    remove_leftovers(place)
    assert sorted(path for path in place.rglob("*")) == before
    remove_leftovers(place / "absent")
