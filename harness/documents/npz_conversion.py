"""The document of `harness npz --to-npy`. Types only."""

from __future__ import annotations

from msgspec import Struct

CONVERSION_SCHEMA = "harness.npz-conversion/1"


class ConversionDocument(Struct, frozen=True):
    """The answer of `harness npz FILE --to-npy DIR`."""

    harness: str
    file: str
    conversion: Conversion
    schema: str = CONVERSION_SCHEMA


class Written(Struct, frozen=True):
    name: str
    path: str
    bytes: int


class LeftOut(Struct, frozen=True):
    name: str
    why: str


class Conversion(Struct, frozen=True):
    directory: str
    written: tuple[Written, ...]
    left_out: tuple[LeftOut, ...]
