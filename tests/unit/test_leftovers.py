"""What a killed harness has left in the temporary folder is removed, and nothing else, however alike it looks."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from harness.capture.leftovers import remove_leftovers
from harness.evidence.case import read_start

LONG_AGO = (1_000_000_000, 1_000_000_000)


@pytest.fixture(scope="module")
def gone() -> str:
    """Number and start of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        start = read_start(process.pid)
    return f"{process.pid}-{start or 7}"


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


def test_of_one_that_is_gone(tmp_path: Path, gone: str) -> None:
    directory, _ = make(tmp_path, f"harness-{gone}-0123abcd")
    (directory / "libharness.so").symlink_to("/usr/lib/libharness.so")
    os.utime(directory, LONG_AGO)
    reused, _ = make(tmp_path, f"harness-{os.getpid()}-1-0123abcd")
    remove_leftovers(tmp_path)
    assert not directory.exists() and not reused.exists()


def test_of_one_that_lives_or_is_heard_or_is_young(tmp_path: Path, gone: str) -> None:
    living, _ = make(tmp_path, f"harness-{os.getpid()}-{read_start(os.getpid())}-0123abcd")
    heard, end = make(tmp_path, f"harness-{gone}-0123abcd", listens=True)
    young = tmp_path / f"harness-{gone}-4567abcd"
    young.mkdir(mode=0o700)
    with end:
        remove_leftovers(tmp_path)
    assert living.exists() and heard.exists() and young.exists()


def test_what_is_not_ours_for_certain_stays(tmp_path: Path, gone: str) -> None:
    (tmp_path / "kept").mkdir()
    make(tmp_path, f"harness-{gone}-0000000a")[0].chmod(0o755)
    full, _ = make(tmp_path, f"harness-{gone}-0000000b")
    (full / "train.py").touch()
    os.utime(full, LONG_AGO)
    (tmp_path / f"harness-{gone}-0000000c").symlink_to(make(tmp_path / "kept", f"harness-{gone}-0000000d")[0])
    (tmp_path / f"harness-{gone}-0000000e").touch(mode=0o700)
    make(tmp_path, f"harness-cases-{gone}-0000000f")
    make(tmp_path, f"harness-{gone}-xyz")
    if os.getuid() == 0:
        os.chown(make(tmp_path, f"harness-{gone}-00000010")[0], 65534, 65534)
    before = sorted(path for path in tmp_path.rglob("*"))
    remove_leftovers(tmp_path)
    assert sorted(path for path in tmp_path.rglob("*")) == before
    remove_leftovers(tmp_path / "absent")
