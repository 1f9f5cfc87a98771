"""How many children of a process have finished while it was watched, and how many of them well. Linux.

How one ended is read from the kernel; where nobody can see it, it did not end well for all we know. Tells nobody apart.
"""

from __future__ import annotations

import os

from harness.capture.proc import open_pidfd, read_exit
from harness.evidence.living.look import ThreadState

_MOST = 64  # whose ends are read: each takes a descriptor


class Offspring:
    """`well`: by exit status 0; `failed`: otherwise; `unseen`: nobody saw how."""

    def __init__(self) -> None:
        self.seen = False
        self.well = self.failed = self.unseen = 0
        self._living: set[int] = set()
        self._pidfds: dict[int, int] = {}
        self._faults: int | None = None

    def close(self) -> None:
        for fd in self._pidfds.values():
            os.close(fd)
        self._pidfds.clear()

    def count(self, faults: int, children: dict[int, ThreadState]) -> None:
        """`children`: by pid, as they are now. `faults`: what those that were collected left with their parent
        (cminflt); it rises for those that came and went between two samples as well."""
        living = {pid for pid, state in children.items() if state not in "ZX"}
        gone = self._living - living
        for pid in gone:
            self._note_end(pid)
        if not gone and self._faults is not None and faults > self._faults:
            self.unseen += 1
        self._faults, self._living = faults, living
        for pid in living - set(self._pidfds):
            if len(self._pidfds) < _MOST and (fd := open_pidfd(pid)) is not None:
                self._pidfds[pid] = fd
        self.seen = self.seen or bool(living) or self.unseen > 0

    def _note_end(self, pid: int) -> None:
        fd = self._pidfds.pop(pid, None)
        status = None
        if fd is not None:
            status = read_exit(fd, pid)[0]
            os.close(fd)
        if status is None:
            self.unseen += 1
        elif status:
            self.failed += 1
        else:
            self.well += 1
