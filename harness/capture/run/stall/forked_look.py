"""A look at the command while it is supervised, made by a copy of the supervisor, so that supervision goes on.

A fork, not a new interpreter: nothing of the user's directory can be imported in place of ours. What the look says is
not known here, only its exit status.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from harness.capture.run.arrivals import stop_following
from harness.errors import EXIT_OUR_BUG


class Quiet(NamedTuple):
    """For how long nothing has moved that is known to be the line of work.

    `stirs`: a process moved of late, perhaps beside the line; `rests`: nothing at all has moved meanwhile.
    `tell_if_moving`: the first look in a row that finds it moving.
    """

    for_s: float
    stirs: bool
    rests: bool
    tell_if_moving: bool


# (processes, null where the user asked for the look) -> exit status
Look = Callable[[tuple[int, ...], Quiet | None], int]


class Looker:
    """One look at a time. `quiet` of the one under way; null: the user asked for it."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self.pid: int | None = None
        self.quiet: Quiet | None = None

    def start(self, pids: tuple[int, ...], quiet: Quiet | None) -> int:
        self.quiet = quiet
        self.pid = os.fork()
        if self.pid == 0:
            self._work(pids, quiet)
        return self.pid

    def _work(self, pids: tuple[int, ...], quiet: Quiet | None) -> NoReturn:
        """In a session of its own: keys are not meant for it, and it can be ended with all that it starts."""
        status = EXIT_OUR_BUG
        try:
            os.setsid()
            stop_following()
            status = self._look(pids, quiet)
        except BaseException:  # noqa: BLE001 (it must not come back into the supervisor, and not end without a word)
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)

    def end(self) -> None:
        """The command has ended, and with it what was looked at."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self.pid = None
