"""Puts a core into the case: linked where it is the user's own, else moved: compressed, its holes kept small.

gzip, because gunzip is everywhere; in blocks, all processors at once, for some seconds. Looks at nothing in it.
"""

from __future__ import annotations

import _thread
import collections
import contextlib
import os
import time
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
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
    """In order; gzip files may follow each other in one file (RFC 1952, 2.2).

    Others take blocks beside us. No pool: that waits for threads to begin, for ever where memory is refused to them.
    """
    workers = os.cpu_count() or 1
    end = time.monotonic() + _BUDGET_S
    starts = range(0, size, _BLOCK)
    for first in range(0, len(starts), 4 * workers):  # a few at a time: they wait in memory
        group = starts[first : first + 4 * workers]
        left, done = collections.deque(group), dict[int, bytes | None]()
        work = partial(_work_on, left, done, lambda start: _compress_at(fd, start, min(_BLOCK, size - start), end))
        for _ in range(workers - 1):
            with contextlib.suppress(RuntimeError, MemoryError):  # no thread: we do it all
                _thread.start_new_thread(work, ())
        work()
        for start in group:
            yield _wait_for(done, start) or _compress_at(fd, start, min(_BLOCK, size - start), end)


def _work_on(left: collections.deque[int], done: dict[int, bytes | None], compress: Callable[[int], bytes]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            start = left.popleft()
            try:
                done[start] = compress(start)
            except (OSError, MemoryError):
                done[start] = None


def _wait_for(done: dict[int, bytes | None], start: int) -> bytes | None:
    """Null: whoever took it could not do it."""
    until = time.monotonic() + _BUDGET_S
    while start not in done and time.monotonic() < until:
        time.sleep(0.001)
    return done.pop(start, None)


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
