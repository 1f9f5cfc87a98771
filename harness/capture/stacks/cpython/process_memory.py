"""The memory of another process, read from outside, and where in it a word stands. Linux.

Reads /proc/PID/{maps,mem,pagemap} within bounds of bytes and time; stops nothing, so that every read may find it
changed or gone. What the words mean is the business of those who ask.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from harness.capture.files.images import read_maps

_PROC = Path("/proc")
_SEARCH_S, _SEARCH_CPU_S = 1.5, 0.4  # others may keep us from the CPU
_SEARCH_BYTES = 192 << 20
_PIECE_BYTES = 1 << 20
_WINDOW_BYTES = 32 << 20  # looked up in the pagemap at once
_PAGE = os.sysconf("SC_PAGESIZE")


class Memory:
    """The private memory of a process that is not code, data or the main stack; read once and kept while we look."""

    def __init__(
        self, pid: int, proc: Path = _PROC, *, search_s: tuple[float, float] = (_SEARCH_S, _SEARCH_CPU_S)
    ) -> None:
        self.rows = read_maps(pid, proc)
        self._mem = os.open(proc / str(pid) / "mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._pagemap: int | None = os.open(proc / str(pid) / "pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._pagemap = None
        self._pieces: list[tuple[int, bytes]] = []
        self._unread, self._is_read = self._read_pieces(), False
        self._end, self._cpu_end = time.monotonic() + search_s[0], time.thread_time() + search_s[1]

    def close(self) -> None:
        for number in (self._mem, self._pagemap):
            if number is not None:
                os.close(number)

    def read(self, address: int, size: int) -> bytes:
        """As much as there is."""
        try:
            return os.pread(self._mem, size, address)
        except (OSError, OverflowError):
            return b""

    def word(self, address: int) -> int:
        """0 where nothing is: nobody points there."""
        return int.from_bytes(self.read(address, 8), "little")

    def is_mapped(self, address: int) -> bool:
        return any(row.start <= address < row.end for row in self.rows)

    def find(self, wanted: int) -> Iterator[int]:
        """Where this word is, within the bounds."""
        needle = wanted.to_bytes(8, "little")
        short = needle.rstrip(b"\0")  # memory is full of zeros, and a needle that ends in one is slow
        for address, data in self._list_pieces():
            at = data.find(short)
            while at >= 0:
                if (address + at) % 8 == 0 and data[at : at + 8] == needle:
                    yield address + at
                at = data.find(short, at + 1)

    def find_bytes(self, wanted: bytes) -> Iterator[int]:
        """Where they are, unless two pieces share them."""
        for address, data in self._list_pieces():
            at = data.find(wanted)
            while at >= 0:
                yield address + at
                at = data.find(wanted, at + 1)

    @property
    def is_searched(self) -> bool:
        """Whether all there is has been read, and the last search has seen it to its end."""
        return self._is_read and not self._is_late()

    def _is_late(self) -> bool:
        return time.monotonic() > self._end or time.thread_time() > self._cpu_end

    def _list_pieces(self) -> Iterator[tuple[int, bytes]]:
        """Counted, because a search may begin while another is under way: what that one reads belongs to both."""
        for at in itertools.count():
            if at == len(self._pieces):
                piece = next(self._unread, None)
                if piece is None:
                    return
                self._pieces.append(piece)
            elif self._is_late():
                return
            yield self._pieces[at]

    def _read_pieces(self) -> Iterator[tuple[int, bytes]]:
        left = _SEARCH_BYTES
        for start, end in self._list_windows():
            for address, size in self._list_touched(start, end):
                if left <= 0 or self._is_late():
                    return
                data = self.read(address, size)
                left -= len(data)
                if data != bytes(len(data)):  # a cheap way past what is all zeros
                    yield address, data
        self._is_read = True

    def _list_windows(self) -> Iterator[tuple[int, int]]:
        anonymous = [row for row in self.rows if row.permissions[:4] == "rw-p" and not row.file[1]]
        private = [row for row in anonymous if not row.path.startswith("[stack")]
        # The main thread's state is among the interpreter's own data.
        own = [row for row in self.rows if row.permissions[:4] == "rw-p" and "python" in row.path.rpartition("/")[2]]
        for row in sorted(own + private, key=lambda row: (not row.path, row.end - row.start)):  # arrays come last
            for start in range(row.start, row.end, _WINDOW_BYTES):
                yield start, min(start + _WINDOW_BYTES, row.end)

    def _list_touched(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Pages in memory or in swap; reading others would map the zero page into the process."""
        runs = [(start, end)]
        if self._pagemap is not None:
            try:
                entries = os.pread(self._pagemap, (end - start) // _PAGE * 8, start // _PAGE * 8)
            except OSError:
                return
            marked = re.finditer(rb"[\x40-\xff]+", entries[7::8])
            runs = [(start + run.start() * _PAGE, start + run.end() * _PAGE) for run in marked]
        for first, last in runs:
            for address in range(first, last, _PIECE_BYTES):
                yield address, min(_PIECE_BYTES, last - address)
