"""The header of a .npy file: shape, dtype, order, and how many bytes of data it promises.

Follows NEP 1 and numpy/lib/format.py (versions 1.0, 2.0, 3.0). Reads text only: nothing is unpickled, no data is read.
"""

from __future__ import annotations

import ast
import math
import re
import struct
import warnings
from typing import IO, Any, NamedTuple

from harness.errors import Unreadable

MAGIC = b"\x93NUMPY"
# numpy itself refuses more than 10,000 unless the file is trusted; a header is parsed as a Python literal.
_MOST_HEADER_BYTES = 65536
_MOST_BYTES = 2**63 - 1
_SIMPLE = re.compile(
    r"(?P<order>[<>|=]?)(?P<kind>[?bBhHiIlLqQpPnNefdgFDGcumMOSaUVt])"
    r"(?P<count>[ \t-\r]*[+-]?[0-9]{1,18}|)(?:\[[^\]]*\])?"
)
# Of a type without a number: struct's letters, which old files have.
_LETTERS = {
    **dict.fromkeys("?bBc", 1),
    **dict.fromkeys("hHe", 2),
    **dict.fromkeys("iIf", 4),
    **dict.fromkeys("lLqQpPnNdFmM", 8),
    **dict.fromkeys("gD", 16),
    "G": 32,
}
_NUMBERED = "?bBhHiIlLqQfdgFDGOSUVMme"  # a character of that number stands for it, too: NPY_TYPES
# "i4, (2,3)f8": numpy's list in a string, each with its shape before it; numpy/_core/_internal.py, _commastring.
_LISTED = re.compile(
    r"[<>|=]? *(?P<shape>\([ ,0-9]*\)|[0-9]*) *[<>|=]?(?P<kind>[A-Za-z0-9.?]+(?:\[[a-zA-Z0-9,.]+\])?)"
    r"(?P<comma>\s*,\s*)?"
)
_PYTHON_2_LONG = re.compile(r"(?<=\d)L\b")


class BadHeader(Unreadable):
    """One sentence on what is wrong with it."""


class Header(NamedTuple):
    """`bytes`: of the header itself. `alignment`: what the address of the data should be a multiple of."""

    version: tuple[int, int]
    shape: tuple[int, ...]
    dtype: str
    fortran_order: bool
    item_bytes: int
    alignment: int
    pickled: bool
    bytes: int

    @property
    def data_bytes(self) -> int:
        return math.prod(self.shape) * self.item_bytes


class _Size(NamedTuple):
    bytes: int
    alignment: int
    pickled: bool


def read_header(file: IO[bytes]) -> Header:
    """From where `file` stands. BadHeader: it is none, or one that numpy would refuse."""
    start = _read(file, 8)
    if start[:6] != MAGIC:
        raise BadHeader("it does not begin like a .npy file")
    version = (start[6], start[7])
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise BadHeader(f"its format version is {version[0]}.{version[1]}, which nobody has defined")
    width = 2 if version == (1, 0) else 4
    (length,) = struct.unpack("<H" if width == 2 else "<I", _read(file, width))
    if length > _MOST_HEADER_BYTES:
        raise BadHeader(f"its header claims to be {length:,} bytes long")
    text = _read(file, length).decode("utf-8" if version == (3, 0) else "latin-1", "replace")
    return _parse(text, version, 8 + width + length)


def _read(file: IO[bytes], count: int) -> bytes:
    data = b""
    while len(data) < count and (part := file.read(count - len(data))):
        data += part
    if len(data) < count:
        raise BadHeader("it ends inside its own header")
    return data


def _parse(text: str, version: tuple[int, int], length: int) -> Header:
    fields = _read_literal(text)
    if not isinstance(fields, dict) or set(fields) != {"descr", "fortran_order", "shape"}:
        raise BadHeader("its header does not name descr, fortran_order and shape")
    shape, order = fields["shape"], fields["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(side) is int and side >= 0 for side in shape):
        raise BadHeader(f"its shape is {str(shape)[:80]}")
    if not isinstance(order, bool):
        raise BadHeader(f"its fortran_order is {str(order)[:80]}")
    size = _measure(fields["descr"])
    if math.prod(shape) * max(size.bytes, 1) > _MOST_BYTES:
        raise BadHeader(f"its shape {shape} would need more memory than there are addresses")
    dtype = fields["descr"] if isinstance(fields["descr"], str) else repr(fields["descr"])
    return Header(version, shape, dtype, order, size.bytes, size.alignment, size.pickled, length)


def _read_literal(text: str) -> Any:
    """MemoryError and RecursionError: what the parser says to a forged one that is nested too deeply."""
    for candidate in (text, _PYTHON_2_LONG.sub("", text)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the parser, about what somebody else has written
                return ast.literal_eval(candidate.strip())
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    raise BadHeader("its header is no Python literal")


def _measure(descr: Any) -> _Size:
    """numpy.lib.format.descr_to_dtype, but for the dtype: a name, a list of fields, or (dtype, shape)."""
    if isinstance(descr, str):
        return _measure_simple(descr)
    if isinstance(descr, tuple) and len(descr) == 2:
        return _repeat(_measure(descr[0]), descr[1])
    if not isinstance(descr, list) or not descr:
        raise BadHeader(f"its dtype is {str(descr)[:80]}")
    sizes = []
    for field in descr:
        if not isinstance(field, tuple) or len(field) not in (2, 3):
            raise BadHeader(f"its dtype has the field {str(field)[:80]}")
        size = _measure(field[1])
        sizes.append(_repeat(size, field[2]) if len(field) == 3 else size)
    # A header does not say whether the fields were meant to be aligned; numpy then takes them for packed.
    return _Size(sum(size.bytes for size in sizes), 1, any(size.pickled for size in sizes))


def _repeat(size: _Size, shape: Any) -> _Size:
    sides = shape if isinstance(shape, tuple) else (shape,)
    if not all(type(side) is int and side >= 0 for side in sides):
        raise BadHeader(f"its dtype has the shape {str(shape)[:80]}")
    return size._replace(bytes=size.bytes * math.prod(sides))


def _measure_simple(word: str) -> _Size:
    if len(word) in (1, 2) and word[-1] < "\x18":
        word = f"{word[:-1]}{_NUMBERED[ord(word[-1])]}"
    found = _SIMPLE.fullmatch(word)
    if found is None:
        return _measure_listed(word)
    kind, count = found["kind"], found["count"]  # as strtol reads it: blanks, a sign
    if count and int(count) < 0:
        raise BadHeader(f"its dtype is {word[:80]!r}, which is none of numpy's own")
    if kind == "O":
        return _Size(8, 8, pickled=True)
    if kind in "SaV":
        return _Size(int(count or 0), 1, pickled=False)
    if kind == "U":
        return _Size(4 * int(count or 0), 4, pickled=False)
    size = int(count) if count else _LETTERS.get(kind, 0)
    alignment = size // 2 if kind in "cFDG" and size > 1 else size
    return _Size(size, min(max(alignment, 1), 16), pickled=False)


def _measure_listed(word: str) -> _Size:
    at, found = 0, None
    sizes: list[_Size] = []
    while at < len(word) or not sizes:
        found = _LISTED.match(word, at)
        if found is None or not _SIMPLE.fullmatch(found["kind"]):
            raise BadHeader(f"its dtype is {word[:80]!r}, which is none of numpy's own")
        size = _measure_simple(found["kind"])
        sizes.append(_repeat(size, _read_literal(found["shape"])) if found["shape"] else size)
        at = found.end()
        if at < len(word) and not found["comma"]:
            raise BadHeader(f"its dtype is {word[:80]!r}, which is none of numpy's own")
    if len(sizes) == 1 and found is not None and not found["comma"]:
        return sizes[0]
    return _Size(sum(size.bytes for size in sizes), 1, any(size.pickled for size in sizes))
