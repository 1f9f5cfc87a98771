"""Changes real answers into hostile ones, and holds readers to their promise: one kind of error, soon, and small.

A change is three numbers, so that whoever makes them up (hypothesis, which can also shrink them, or a plain random
generator, which is a hundred times faster) makes the same inputs of them.
"""

from __future__ import annotations

import resource
import struct
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from harness.errors import HarnessError, Unreadable

MOST_BYTES = 1 << 18  # of an input
# Of an input of that size; the slowest takes a hundredth of it. CPU time: another program's load is nobody's fault.
MOST_CPU_S = 10.0
MOST_GROWTH_KIB = 512 << 10
PROMISED = (Unreadable, HarnessError, OSError)

Change = tuple[int, int, int]  # what, where, with what
_NUMBERS = (0, 1, -1, 2, 7, 8, 63, 64, 127, 128, 255, 256, 4095, 4096, 65535, 65536, 1 << 31, (1 << 31) - 1,
            (1 << 32) - 1, 1 << 40, 1 << 47, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)  # fmt: skip
_TEXTS = (
    "", "0", "-1", "²", "٣", "1_0", "+1", " ", "\n", "\t", "\0", "9" * 19, "9" * 21, "9" * 5000, "1e999", "-1e308",
    "0x", "0xzz", "0x" + "f" * 17, "null", "true", "[]", "{}", '""', "[" * 2000, "{" * 2000, '{"a":' * 500, "\\ud800",
    "\u202e", "\u2028", "\f", "\x1c", "/", "../../..", "/dev/zero", ",", ":", ")", "(", "]", "}", "\\", '"', "'", "%s",
    "{pid}", "a" * 3000, "S", "R",
)  # fmt: skip
_WORDS = (*(word.encode() for word in _TEXTS), b"\xff", b"\xc3", b"\xf0\x9f", b"\x1b[2J")


class Target(NamedTuple):
    """`read` takes what the other side has sent. `seeds`: what it really sends. `text`: words and digits, not bytes."""

    name: str
    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    text: bool = True


class Broken(AssertionError):
    """A reader has not kept its promise."""


def change(data: bytes, changes: Sequence[Change], seeds: Sequence[bytes], text: bool) -> bytes:
    for what, where, value in changes:
        kinds = _TEXT if text else _BYTES
        at = where % (len(data) + 1)
        data = kinds[what % len(kinds)](data, at, value, seeds)[:MOST_BYTES]
    return data


def _cut(data: bytes, at: int, value: int, seeds: Sequence[bytes]) -> bytes:
    return data[:at]


def _remove(data: bytes, at: int, value: int, seeds: Sequence[bytes]) -> bytes:
    return data[:at] + data[at + 1 + value % 64 :]


def _repeat(data: bytes, at: int, value: int, seeds: Sequence[bytes]) -> bytes:
    piece = data[at : at + 1 + value % 512]
    return data[:at] + piece * (2 + (value >> 9) % 64) + data[at + len(piece) :]


def _splice(data: bytes, at: int, value: int, seeds: Sequence[bytes]) -> bytes:
    other = seeds[value % len(seeds)]
    return data[:at] + other[(value >> 8) % (len(other) + 1) :]


def _flip(data: bytes, at: int, value: int, seeds: Sequence[bytes]) -> bytes:
    return data[:at] + bytes([(data[at] if at < len(data) else 0) ^ (1 << value % 8)]) + data[at + 1 :]


def _overwrite(data: bytes, at: int, value: int, seeds: Sequence[bytes]) -> bytes:
    """Where numbers mostly stand: a multiple of their size."""
    width = (1, 2, 4, 8)[value % 4]
    number = _NUMBERS[(value >> 2) % len(_NUMBERS)] & ((1 << 8 * width) - 1)
    at -= at % width
    return data[:at] + number.to_bytes(width, "big" if value >> 16 & 7 == 0 else "little") + data[at + width :]


def _overwrite_head(data: bytes, at: int, value: int, seeds: Sequence[bytes]) -> bytes:
    return _overwrite(data, at % 512, value, seeds)


def _nudge(data: bytes, at: int, value: int, seeds: Sequence[bytes]) -> bytes:
    at -= at % 4
    if at + 4 > len(data):
        return data
    (number,) = struct.unpack_from("<I", data, at)
    return data[:at] + (number + value % 17 - 8 & 0xFFFFFFFF).to_bytes(4, "little") + data[at + 4 :]


def _insert_word(data: bytes, at: int, value: int, seeds: Sequence[bytes]) -> bytes:
    return data[:at] + _WORDS[value % len(_WORDS)] + data[at:]


def _replace_token(data: bytes, at: int, value: int, seeds: Sequence[bytes]) -> bytes:
    """The digits, or the letters, that stand there."""
    start = end = at
    while start > 0 and data[start - 1 : start].isalnum():
        start -= 1
    while end < len(data) and data[end : end + 1].isalnum():
        end += 1
    return data[:start] + _WORDS[value % len(_WORDS)] + data[end:]


def _swap_lines(data: bytes, at: int, value: int, seeds: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    one, other = at % len(lines), value % len(lines)
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


_BYTES = (_overwrite, _overwrite_head, _overwrite, _nudge, _flip, _cut, _remove, _repeat, _splice)
_TEXT = (_replace_token, _insert_word, _replace_token, _flip, _remove, _repeat, _swap_lines, _cut, _splice)


def execute(target: Target, data: bytes) -> bool:
    """Whether it was read. Broken: what was promised does not hold."""
    begun, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        target.read(data)
        read = True
    except PROMISED:
        read = False
    except Exception as error:
        raise Broken(f"{target.name}: {type(error).__name__}: {error}") from error
    cpu_s = time.process_time() - begun
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if cpu_s > MOST_CPU_S or grown_kib > MOST_GROWTH_KIB:
        raise Broken(f"{target.name}: {cpu_s:.1f} s of CPU and {grown_kib >> 10} MiB for {len(data)} bytes")
    return read
