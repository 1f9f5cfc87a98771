"""The counter behind `harness.beat(step=…)`: a page shared with whoever looks; no thread, no lock, no system call.

The page is a private file, named by pid, in $XDG_RUNTIME_DIR, /dev/shm or the temporary directory, so that it can be
read where the kernel does not let a user trace. Three words: magic, step, monotonic time in ns. A program that cannot
have such a file runs on without; one that is killed leaves its 24 bytes behind. What reads it is
capture/living/counters/beats.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic_ns

MAGIC = int.from_bytes(b"hrnsbeat", "little")
ROOM = 24
_words: memoryview | list[int] | None = None


def beat(step: int) -> None:
    """Says how far the program is, to whoever looks from outside: `harness attach`, `watch`, `run --stall-after`."""
    words = _words
    if words is None:
        words = _start()
    words[1] = step
    words[2] = monotonic_ns()


def _start() -> memoryview | list[int]:
    """Once for each process: a fork gets its own at its first beat."""
    global _words
    words: memoryview | list[int] = [0, 0, 0]
    for path in list_paths(os.getpid(), os.environ.get):
        try:
            words = _create(path)
        except OSError:
            continue  # not there, full, or somebody else's
        break
    words[0] = MAGIC
    _words = words
    return words


def _create(path: str) -> memoryview:
    import atexit
    import mmap

    if os.path.lexists(path):
        os.unlink(path)  # noqa: PTH108 (an earlier process's, with our pid)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, bytes(ROOM))  # a page that cannot be had is an error here, and a SIGBUS later
        page = mmap.mmap(fd, ROOM)
    finally:
        os.close(fd)
    atexit.register(_remove, path, os.getpid())
    return memoryview(page).cast("q")


def list_paths(pid: int, variable: Callable[[str], str | None]) -> list[str]:
    folders = [variable("XDG_RUNTIME_DIR"), "/dev/shm", variable("TMPDIR"), "/tmp"]
    return [f"{folder}/harness-beat-{pid}" for folder in dict.fromkeys(filter(None, folders))]


def _remove(path: str, pid: int) -> None:
    if os.getpid() == pid:
        try:
            os.unlink(path)  # noqa: PTH108 (pathlib may be gone by then)
        except OSError:
            pass  # somebody cleaned up


def _forget() -> None:
    global _words
    _words = None


if hasattr(os, "register_at_fork"):  # not on Windows, where there is no fork either
    os.register_at_fork(after_in_child=_forget)
