"""Puts a core into the case: linked where it is the user's own, else moved: compressed, its holes kept small.

gzip, because gunzip is everywhere; in blocks, all processors at once, for some seconds. Looks at nothing in it.
"""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from harness.capture.cores.finding import Found

_BLOCK = 4 * 1024**2
_FAST, _STORE = 1, 0
# Weights and activations hardly shrink: a block whose samples do not is stored, which is six times as fast.
_SAMPLE = 8 * 1024
_WORTH = 0.9
# After this long the rest is stored as it is: the reader of the report waits.
_BUDGET_S = 10.0
_GZIP = 31  # zlib's word for a gzip header


class TooLarge(Exception):
    """Compressed it is still more than may be kept."""


class Replaced(Exception):
    """Another process has written its core over this one."""


def link_core(found: Path, case: Path, pid: int) -> Path:
    """Symbolic: a hard link would hold the disk of a core that its owner believes to have removed."""
    kept = case / f"core.{pid}"
    kept.symlink_to(found.absolute())
    return kept


def move_core(found: Found, case: Path, pid: int, most_bytes: int) -> Path:
    """OSError, TooLarge: it is still where it was. Replaced: what is there now is not touched."""
    kept = case / f"core.{pid}.gz"
    try:
        with found.path.open("rb") as core, kept.open("xb") as file:
            kept.chmod(0o600)
            status = os.fstat(core.fileno())
            if not found.is_still(status):
                raise Replaced
            size = status.st_size
            written = 0
            for piece in _compress_all(core.fileno(), size):
                written += file.write(piece)
                if written > most_bytes:
                    raise TooLarge
    except (OSError, TooLarge, Replaced):
        kept.unlink(missing_ok=True)
        raise
    with contextlib.suppress(FileNotFoundError):
        if found.is_still(found.path.stat()):
            found.path.unlink()
    return kept


def _compress_all(fd: int, size: int) -> Iterator[bytes]:
    """In order; gzip files may follow each other in one file (RFC 1952, 2.2)."""
    workers = os.cpu_count() or 1
    end = time.monotonic() + _BUDGET_S
    with ThreadPoolExecutor(workers) as pool:
        starts = range(0, size, _BLOCK)
        for first in range(0, len(starts), 4 * workers):  # a few at a time: they wait in memory
            group = starts[first : first + 4 * workers]
            yield from pool.map(lambda start: _compress_at(fd, start, min(_BLOCK, size - start), end), group)


def _compress_at(fd: int, start: int, count: int, end: float) -> bytes:
    if _is_hole(fd, start, count):
        return _compress_zeros(count)
    data = os.pread(fd, count, start)
    if data.count(0) == len(data):
        return _compress_zeros(len(data))
    return _compress(data, _FAST if time.monotonic() < end and _shrinks(data) else _STORE)


def _shrinks(data: bytes) -> bool:
    sample = b"".join(data[at : at + _SAMPLE] for at in range(0, len(data), _BLOCK // 8))
    return len(zlib.compress(sample, _FAST)) < _WORTH * len(sample)


def _is_hole(fd: int, start: int, count: int) -> bool:
    """pread on another thread does not care where the file stands; SEEK_DATA only asks."""
    try:
        return os.lseek(fd, start, os.SEEK_DATA) >= start + count
    except OSError:  # nothing but a hole up to the end, or a file system that does not tell
        return False


@cache
def _compress_zeros(count: int) -> bytes:
    return _compress(bytes(count))


def _compress(data: bytes, level: int = _FAST) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP)
    return packer.compress(data) + packer.flush()
