"""What was read before is used again exactly as long as the file is the same one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from harness.capture.files.binaries import read_binaries
from harness.capture.files.scan_cache import Memory, ReadFile, ReadFolder, identity_of
from tests.builders.natives import build


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "x.so"
    path.write_bytes(build("elf")[0].read_bytes())
    _age(path)
    return str(path)


def _age(path: Path) -> None:
    an_hour_ago = time.time() - 3600
    os.utime(path, (an_hour_ago, an_hour_ago))


def remember(place: Path, file: str) -> ReadFile:
    memory = Memory(place)
    read = ReadFile(identity_of(file), tuple(read_binaries(Path(file))))
    memory.keep_file(file, read)
    memory.keep_folder("/x", ReadFolder(read.identity, ("a.so",), ("b",)))
    memory.save()
    return read


def test_it_is_there_next_time_for_its_owner_only(tmp_path: Path, file: str) -> None:
    place = tmp_path / "cache" / "files"
    read = remember(place, file)
    assert Memory(place).file(file, identity_of(file)) == read
    assert Memory(place).folder("/x", read.identity) is not None
    assert place.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in place.parent.iterdir()] == ["files"]


def test_a_change_of_any_part_of_its_identity_is_another_file(tmp_path: Path, file: str) -> None:
    place = tmp_path / "files"
    remember(place, file)
    os.utime(file, ns=(1, identity_of(file).mtime_ns + 1))
    assert Memory(place).file(file, identity_of(file)) is None
    copy = Path(file).with_name("y.so")
    copy.write_bytes(Path(file).read_bytes())
    _age(copy)
    copy.replace(file)
    assert Memory(place).file(file, identity_of(file)) is None


def test_a_file_that_was_written_just_now_is_not_remembered(tmp_path: Path, file: str) -> None:
    Path(file).touch()
    remember(tmp_path / "files", file)
    assert Memory(tmp_path / "files").file(file, identity_of(file)) is None


@pytest.mark.parametrize("damage", [b"", b"\x00", b"\x83\xa6format", b"\xff" * 4096, None])
def test_damage_means_to_read_again(tmp_path: Path, file: str, damage: bytes | None) -> None:
    place = tmp_path / "files"
    remember(place, file)
    data = place.read_bytes()
    place.write_bytes(data[: len(data) // 2] if damage is None else damage)
    assert Memory(place).file(file, identity_of(file)) is None
    read = remember(place, file)
    assert Memory(place).file(file, identity_of(file)) == read


def test_every_cut_and_flip_is_survived(tmp_path: Path, file: str) -> None:
    place = tmp_path / "files"
    remember(place, file)
    data = place.read_bytes()
    for at in range(len(data)):
        place.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        Memory(place).file(file, identity_of(file))


def test_no_place_to_write_costs_no_answer(tmp_path: Path, file: str) -> None:
    (tmp_path / "flat").write_text("a file where a folder should be")
    remember(tmp_path / "flat" / "files", file)
    assert Memory(None).file(file, identity_of(file)) is None
