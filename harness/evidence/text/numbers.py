"""Numbers that somebody else has written, read strictly: digits of ASCII, and no more than 64 bits have."""

from __future__ import annotations

from harness.errors import Unreadable

_MOST_DIGITS = 20  # of a number of 64 bits


def read_number(word: str, base: int = 10) -> int:
    """ASCII digits, without a sign; Python's own `int` takes those of every script, underscores, and any length."""
    if not (word.isascii() and word.replace("x", "0", 1).isalnum() and len(word) <= _MOST_DIGITS):
        raise Unreadable(f"{word[:_MOST_DIGITS]!r} is no number")
    try:
        return int(word, base)
    except ValueError as error:
        raise Unreadable(str(error)) from error


def find_number(word: str) -> int | None:
    """Null: it is none."""
    try:
        return read_number(word)
    except Unreadable:
        return None
