"""The bytes of one native file or loaded image, read by position and never past their end.

Files are read, not mapped: a file cut short while it is looked at must not end in SIGBUS.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from harness.errors import Unreadable

LONGEST_NAME = 4096


class Content:
    """`read` takes a position and a size and may give fewer bytes; `size_bytes` is where the content ends."""

    def __init__(
        self, read: Callable[[int, int], bytes], size_bytes: int, close: Callable[[], None] | None = None
    ) -> None:
        self._read = read
        self._close = close
        self.size_bytes = size_bytes

    def read(self, position: int, size: int) -> bytes:
        """Exactly that much, or Unreadable."""
        if not 0 <= position <= position + size <= self.size_bytes:
            raise Unreadable("points outside of the file")
        data = self._read(position, size)
        if len(data) != size:
            raise Unreadable("cut short")
        return data

    def text(self, position: int) -> str:
        """The string that ends with a zero byte."""
        return text_at(self.read(position, min(LONGEST_NAME, self.size_bytes - position)), 0)

    def read_all(self, spans: list[tuple[int, int]]) -> Iterator[bytes]:
        """Each (position, size); together no more than there is."""
        if sum(size for _, size in spans) > self.size_bytes:
            raise Unreadable("its parts overlap")
        for position, size in spans:
            yield self.read(position, size)

    def part(self, position: int, size: int) -> Content:
        """A file inside this one."""
        if not 0 <= position <= position + size <= self.size_bytes:
            raise Unreadable("points outside of the file")
        return Content(lambda at, count: self._read(position + at, count), size)

    def close(self) -> None:
        if self._close is not None:
            self._close()

    def __enter__(self) -> Content:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_content(source: Path | bytes | BinaryIO) -> Content:
    """Of a file on disk, or of one that is in memory or in an archive already."""
    if isinstance(source, Path):
        return _open_file(source)
    data = source if isinstance(source, bytes) else source.read()
    return Content(lambda position, size: data[position : position + size], len(data))


def _open_file(path: Path) -> Content:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO called x.so must not hold us up

    def read(position: int, size: int) -> bytes:
        blocks = []
        while size > 0 and (block := os.pread(descriptor, size, position)):  # one read gives 2 GiB at most
            blocks.append(block)
            position, size = position + len(block), size - len(block)
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)

    return Content(read, os.fstat(descriptor).st_size, lambda: os.close(descriptor))


def unpack(shape: str, data: bytes, at: int = 0) -> tuple[Any, ...]:
    """struct.unpack_from, with one kind of error."""
    try:
        return struct.unpack_from(shape, data, at)
    except struct.error as error:
        raise Unreadable(f"cut short: {error}") from error


def text_at(table: bytes, at: int) -> str:
    """The string at that offset of a table of strings."""
    end = table.find(b"\0", at, at + LONGEST_NAME)
    if at < 0 or end == -1:
        raise Unreadable("a name that does not end")
    return table[at:end].decode(errors="replace")
