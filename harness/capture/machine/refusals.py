"""What the machine refuses us: descriptors, processes, memory, disk. It costs what needed it, and is told as a gap.

The command never pays: neither its status nor its output hangs on anything that can be refused here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator

# A module whose file cannot be opened or mapped is an ImportError.
REFUSED = (OSError, MemoryError, ImportError)
# A look needs some descriptors at once, and so does the report: what is held per process leaves so many.
_RESERVE = 64
_SHARE = 2  # of a limit that is smaller than two reserves


class Refusals:
    """Each thing that was done without, and why the first time."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}

    def note(self, what: str, error: BaseException) -> None:
        self.told.setdefault(what, explain(error))

    @contextlib.contextmanager
    def without(self, what: str) -> Iterator[None]:
        """What is in the block is left out where it is refused."""
        try:
            yield
        except REFUSED as error:
            self.note(what, error)


def explain(error: BaseException) -> str:
    """As strerror does; never empty (a MemoryError has no words)."""
    words = error.strerror if isinstance(error, OSError) else str(error)
    return words or os.strerror(errno.ENOMEM if isinstance(error, MemoryError) else errno.EIO)


def leaves_room(fd: int) -> bool:
    """Whether enough descriptors are left beside this one: the kernel gives the lowest number that is free."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most == resource.RLIM_INFINITY or fd < max(most - _RESERVE, most // _SHARE)


def open_pidfd(pid: int) -> int | None:
    """Null where the system has none, the process is gone, or it would be one of the last descriptors."""
    try:
        fd = os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None
    if leaves_room(fd):
        return fd
    os.close(fd)
    return None
