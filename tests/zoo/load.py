"""A loaded machine: two busy processes per core for as long as the context lasts. They are ended by their own pids."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

PER_CORE = 2
# It ends with whoever started it, whatever ends that one: its standard input is a pipe of which nobody else has an end.
_BUSY = """
import os, threading
def leave():
    os.read(0, 1)
    os._exit(0)
threading.Thread(target=leave, daemon=True).start()
while True:
    pass
"""


@contextlib.contextmanager
def busy_machine() -> Iterator[None]:
    words = [sys.executable, "-I", "-S", "-c", _BUSY]
    busy = [subprocess.Popen(words, stdin=subprocess.PIPE) for _ in range(PER_CORE * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.communicate()
