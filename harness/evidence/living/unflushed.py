"""What a process had printed but not flushed: the bytes are exact, or there is a gap instead."""

from __future__ import annotations

from msgspec import Struct


class Unflushed(Struct, frozen=True):
    """`bytes` counts all of it; a truncated `text` is its end. One with 0 bytes: the stream was found, and empty.

    Two of the same descriptor: two objects write to it, and what comes first is not known.
    """

    fd: int
    name: str
    bytes: int
    text: str
    truncated: bool
