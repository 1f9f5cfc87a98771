"""What somebody else has written, read strictly by its type and within bounds of bytes, depth and digits.

A tool, a probe, another host, a file that anybody could have put there: none of them is trusted to be what it is said
to be. Does not know what any of it means.
"""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from harness.errors import Unreadable
from harness.evidence.text.numbers import _MOST_DIGITS

MOST_BYTES = 64 << 20
_LONG_NUMBER = re.compile(rb"[0-9]{20}")
_DECODERS: dict[Any, Any] = {}
_ONE_AT_A_TIME = threading.Lock()
_Fact = TypeVar("_Fact")


def decode_json(data: bytes | msgspec.Raw, kind: type[_Fact], most_bytes: int = MOST_BYTES) -> _Fact:
    """By its type, which also bounds how deep it goes."""
    if len(data) > most_bytes:
        raise Unreadable(f"it is {len(data):,} bytes long, and {most_bytes:,} are the most that is read")
    try:
        fact = _find_decoder(kind).decode(data)
        if _LONG_NUMBER.search(data):  # which may stand in a text
            json.loads(bytes(data), parse_int=_check_number)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"it is no such answer: {error}") from error
    return fact


def _find_decoder(kind: type[_Fact]) -> msgspec.json.Decoder[_Fact]:
    """Made under a lock: two threads that meet a type for the first time crash msgspec (0.22, seen 2026-11)."""
    with _ONE_AT_A_TIME:
        if kind not in _DECODERS:
            _DECODERS[kind] = msgspec.json.Decoder(kind)
        return _DECODERS[kind]  # type: ignore[no-any-return]


def _check_number(word: str) -> int:
    if len(word) > _MOST_DIGITS:
        raise Unreadable("it has a number of more than 64 bits")
    return 0


def read_bounded(path: Path, most_bytes: int = MOST_BYTES, *, follow: bool = True) -> bytes:
    """All of a regular file. Unreadable: it is none (a FIFO would hold us up), or a larger one.

    `follow` false: OSError where it is a link.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Unreadable(f"{path} is not a regular file")
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise Unreadable(f"{path} is longer than {most_bytes:,} bytes")
    return data
