"""A .npz of any size that needs no disk: one stored member, its data a hole. zip64, written by hand."""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path


def header(text: str, version: tuple[int, int] = (1, 0)) -> bytes:
    data = text.encode("utf-8")
    length = struct.pack("<H" if version == (1, 0) else "<I", len(data))
    return b"\x93NUMPY" + bytes(version) + length + data


def build_sparse(path: Path, shape: tuple[int, ...], name: str = "X_train") -> int:
    """A stored float32 member of that shape, all hole. Returns the bytes of its data."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    start = header(text.ljust(117) + "\n")
    data = 4 * math.prod(shape)
    size, member = len(start) + data, f"{name}.npy".encode()
    sizes = struct.pack("<HHQQ", 1, 16, size, size)
    with path.open("wb") as file:
        file.write(
            struct.pack("<4s5H3L2H", b"PK\3\4", 45, 0, 0, 0, 0, 0, 2**32 - 1, 2**32 - 1, len(member), len(sizes))
        )
        file.write(member + sizes + start)
        file.seek(data, os.SEEK_CUR)
        at = file.tell()
        fields = (45, 45, 0, 0, 0, 0, 0, 2**32 - 1, 2**32 - 1, len(member), len(sizes), 0, 0, 0, 0, 0)
        entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", *fields) + member + sizes
        file.write(entry)
        file.write(struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, len(entry), at))
        file.write(struct.pack("<4sLQL", b"PK\6\7", 0, at + len(entry), 1))
        file.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, 2**32 - 1, 2**32 - 1, 0))
    return data
