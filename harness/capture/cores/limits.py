"""The core size limit of a supervised command: raised when it starts, put back where a core is not needed any more.

Changes the soft limit only, and harness's own not for longer than a start takes. With a pipe in core_pattern the kernel
ignores the limit.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Iterator
from typing import Literal

from harness.evidence.case import MOST_CORE_BYTES

Wish = Literal["auto", "never", "always"]


class CoreLimit:
    """`auto` raises a limit of 0 and leaves any other: who asked for cores gets them where they always are."""

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.given, self.hard = resource.getrlimit(resource.RLIMIT_CORE)
        self.wanted = self._choose()

    def _choose(self) -> int:
        if self.wish == "never":
            return 0
        if self.wish == "always":
            return self.hard
        if self.given != 0 or sys.platform != "linux":
            return self.given
        return min(self._most(), self.hard) if self.hard != resource.RLIM_INFINITY else self._most()

    def _most(self) -> int:
        """No more than cases may hold, and than half of what is free where it will be written."""
        with contextlib.suppress(OSError):
            room = os.statvfs(".")
            return min(MOST_CORE_BYTES, room.f_bavail * room.f_frsize // 2)
        return MOST_CORE_BYTES

    @property
    def is_ours(self) -> bool:
        """A core that is there because of us: it is moved into the case, not left where the user would find it."""
        return self.wanted != self.given and self.given == 0

    @property
    def why_none(self) -> tuple[str, str] | None:
        """Why the kernel wrote no core, and the fix, where this limit is the reason."""
        if self.wish == "never":
            return "--core never was asked for", "harness run --core auto …"
        if self.wanted == 0:
            return "the hard limit of core files is 0 here (ulimit -H -c)", "sudo prlimit --core=unlimited --pid $$"
        return None

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """What starts meanwhile inherits it."""
        if self.wanted == self.given:
            yield
            return
        resource.setrlimit(resource.RLIMIT_CORE, (self.wanted, self.hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_CORE, (self.given, self.hard))

    def put_back(self, pid: int) -> None:
        """For a process that needs no core: it was seen well, or outlives us. One that chose its own limit keeps it."""
        if self.wish != "auto" or not self.is_ours:
            return
        with contextlib.suppress(OSError):  # gone, or another user's by now
            soft, hard = resource.prlimit(pid, resource.RLIMIT_CORE)
            if soft == self.wanted:
                resource.prlimit(pid, resource.RLIMIT_CORE, (self.given, hard))
