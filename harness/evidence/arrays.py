"""Arrays in a file: what their headers say, what they cost in memory, and how much memory there is.

Facts only. Nothing of an array's data was read to know them.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from harness.evidence.gap import Gap

Method = Literal["stored", "deflate", "bzip2", "lzma", "other"]


class Array(Struct, frozen=True):
    """One array. `ram_bytes` null: not known before it is loaded (pickled), or its header cannot be read.

    `offset`: where its data begins in the file, null unless it could be mapped from there. `trouble`: one sentence on
    why numpy would fail with it, or would not find it.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: str | None
    fortran_order: bool
    method: Method
    file_bytes: int
    ram_bytes: int | None
    offset: int | None = None
    aligned: bool = True
    pickled: bool = False
    shadowed: bool = False
    trouble: str | None = None


class ArrayFile(Struct, frozen=True):
    """`others`: members that are no arrays; numpy hands out their bytes."""

    path: str
    kind: Literal["npz", "npy"]
    file_bytes: int
    arrays: tuple[Array, ...]
    others: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()


class Room(Struct, frozen=True):
    """How much memory can be had now. `available_bytes` is the least of all that apply, `source` the one it is.

    Null: could not be read, and `gap` says why.
    """

    available_bytes: int | None
    source: str | None
    swap_free_bytes: int | None = None
    gap: Gap | None = None


class Measured(Struct, frozen=True):
    """One access to one array in a child: by how much its resident memory grew, and its peak, above what it had."""

    file: str
    name: str
    grown_bytes: int | None
    peak_bytes: int | None
    seconds: float | None
    mapped: bool | None = None
    why_not: str | None = None
