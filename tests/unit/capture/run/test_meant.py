"""A file that is asked to run and is no program: what to type instead, by its content."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from harness.capture.run.what_to_type import tell_what_to_type

CORE = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 4, 62) + bytes(44)
PROGRAM = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, 62) + bytes(44)


@pytest.mark.parametrize(
    ("name", "content", "command"),
    [
        ("core", CORE, "gdb -batch -ex 'thread apply all bt' PROGRAM {path}"),
        ("job", PROGRAM, None),
        ("job", b"#!/bin/sh\n", None),
        ("train.py", b"import torch\n", "harness run python {path} -x 'a b'"),
        ("go.sh", b"echo\n", "harness run sh {path} -x 'a b'"),
        ("go", b"echo\n", "harness run sh {path} -x 'a b'"),
        ("rows.csv", b"1,2\n", "file {path}"),
        ("weights", b"\x00\x01", "file {path}"),
        ("bank.npz", b"PK\x03\x04", "harness npz {path}"),
        ("bank", b"\x93NUMPY\x01\0", "harness npz {path}"),
        ("model.bin", b"\x00\x01\x02", "file {path}"),
        ("empty", b"", "ls -l {path}"),
    ],
)
def test_what_to_type(tmp_path: Path, name: str, content: bytes, command: str | None) -> None:
    path = tmp_path / "my files"
    path.mkdir()
    (path / name).write_bytes(content)
    told = tell_what_to_type(str(path / name), ["-x", "a b"])
    assert told == (command and command.format(path=f"'{path / name}'"))
