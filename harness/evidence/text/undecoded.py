"""Bytes that are no UTF-8, in command lines and paths: how they pass through documents and come back as they were.

Python has such a byte as a lone surrogate (PEP 383), which no encoder takes. In our text it is a noncharacter with the
byte behind it; in JSON it is written as that surrogate, so that `os.fsencode` of what `json.loads` gives has the bytes.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from harness.evidence.text.answers import decode_json

_Fact = TypeVar("_Fact")
_MARK = "\ufdd0"  # never in text that is exchanged (Unicode 23.7)
_SURROGATES = re.compile("[\ud800-\udfff]")
_MARKED = re.compile(f"{_MARK}([\x80-\xff])")
_MARKED_JSON = re.compile(_MARK.encode() + rb"([\xc2\xc3][\x80-\xbf])")
_ESCAPED = re.compile(rb"(?<!\\)((?:\\\\)*)\\u[dD][cC]([89a-fA-F][0-9a-fA-F])")


def mark_bytes(text: str) -> str:
    """Text that can be encoded. A surrogate that stands for no byte is one character that cannot be shown."""
    return _SURROGATES.sub(_mark, text)


def _mark(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"{_MARK}{chr(number - 0xDC00)}" if 0xDC80 <= number <= 0xDCFF else "\ufffd"


def show_bytes(text: str) -> str:
    """For people: `\\xff`."""
    return _MARKED.sub(lambda found: f"\\x{ord(found[1]):02x}", text)


def restore_bytes(text: str) -> str:
    """As Python has it, for a path that is to be opened."""
    return _MARKED.sub(lambda found: chr(0xDC00 + ord(found[1])), text)


def encode_document(document: Any) -> bytes:
    return _MARKED_JSON.sub(lambda found: f"\\udc{ord(found[1].decode()):02x}".encode(), msgspec.json.encode(document))


def decode_document(data: bytes, kind: type[_Fact]) -> _Fact:
    """Unreadable: it is none."""
    return decode_json(unescape(data), kind)


def unescape(data: bytes) -> bytes:
    """What a strict decoder takes."""
    if b"\\u" not in data:
        return data
    return _ESCAPED.sub(lambda found: found[1] + f"{_MARK}{chr(int(found[2], 16))}".encode(), data)
