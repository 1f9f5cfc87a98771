"""How many bytes each thread of a process has read and written since it was born, as /proc counts them. Linux.

Threads that have ended left theirs with the process. A process that has moved none is read in one go, however many
threads it has. Says nothing of sockets that are read by recv and written by send: the kernel does not count those.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from harness.capture.proc import list_tids


class Bytes(NamedTuple):
    """rchar and wchar: what was asked for, cached or not; man 5 proc_pid_io."""

    read: int
    written: int


class ThreadBytes:
    """The threads of one process, as last read."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._total: Bytes | None = None
        self._threads: dict[int, Bytes] = {}
        self._gone_before = 0, 0

    def read(self) -> dict[int | None, Bytes] | None:
        """By thread; under null those who ended. Null: it may not be seen, or has gone."""
        total = _read(f"/proc/{self.pid}/io")
        if total is None:
            return None
        if total != self._total:
            self._read_threads(total)
        gone = self._ended(total)
        found: dict[int | None, Bytes] = {None: gone}
        found.update(self._threads.items())
        return found

    def _read_threads(self, total: Bytes) -> None:
        first = self._total is None
        self._total = total
        for tid in list_tids(self.pid):
            if (found := _read(f"/proc/{self.pid}/task/{tid}/io")) is not None:
                self._threads[tid] = found
        if first:  # what they moved since the total was read must not look as if others had moved it
            later = _read(f"/proc/{self.pid}/io") or total
            known = self._known()
            self._gone_before = later.read - known[0], later.written - known[1]

    def _known(self) -> tuple[int, int]:
        return sum(one.read for one in self._threads.values()), sum(one.written for one in self._threads.values())

    def _ended(self, total: Bytes) -> Bytes:
        """Never more than what the threads we know cannot have moved: their own figures are read after the total."""
        known = self._known()
        before = self._gone_before
        return Bytes(max(0, total.read - known[0] - before[0]), max(0, total.written - known[1] - before[1]))


def _read(path: str) -> Bytes | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 (1,000 threads, twice a second)
            words = file.read().split()
        return Bytes(int(words[1]), int(words[3]))
    return None
