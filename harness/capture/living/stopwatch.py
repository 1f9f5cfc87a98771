"""How long a process stands still while a tool holds it, measured from outside, to about a millisecond.

Asks /proc in a thread of our own while the tool, a child, runs. Stops nothing itself.
"""

from __future__ import annotations

import os
import threading
import time

_EVERY_S = 0.0005


class Stopwatch:
    """`with Stopwatch(pid) as watch: …`, then `watch.stopped_ms`."""

    def __init__(self, pid: int) -> None:
        self.stopped_ms = 0.0
        self._path = f"/proc/{pid}/stat"
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Stopwatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # it has ended
        try:
            before = time.monotonic()
            while not self._done.wait(_EVERY_S):
                # Not by proc.py: the file stays open, so that a reading costs one system call.
                stopped = os.pread(file, 512, 0).rpartition(b")")[2][1:2] in (b"t", b"T")
                now = time.monotonic()
                self.stopped_ms += (now - before) * 1000 if stopped else 0.0
                before = now
        except OSError:
            return
        finally:
            os.close(file)
