"""A look at the command while it is supervised, made by a copy of the supervisor, so that supervision goes on.

A fork, not a new interpreter: nothing of the user's directory can be imported in place of ours. What the look says is
not known here, only its exit status.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import NoReturn

from harness.capture.arrivals import stop_following
from harness.errors import EXIT_OUR_BUG

# (processes, for how long nothing moved or null, whether somebody stirred meanwhile, whether to tell when it moves)
# -> exit status
Look = Callable[[tuple[int, ...], float | None, bool, bool], int]


class Looker:
    """One look at a time. `quiet_s` of the one under way; null: the user asked for it."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self.pid: int | None = None
        self.quiet_s: float | None = None

    def start(self, pids: tuple[int, ...], quiet_s: float | None, stirs: bool, tell_if_moving: bool) -> int:
        self.quiet_s = quiet_s
        self.pid = os.fork()
        if self.pid == 0:
            self._work(pids, quiet_s, stirs, tell_if_moving)
        return self.pid

    def _work(self, pids: tuple[int, ...], quiet_s: float | None, stirs: bool, tell_if_moving: bool) -> NoReturn:
        """In a session of its own: keys are not meant for it, and it can be ended with all that it starts."""
        status = EXIT_OUR_BUG
        try:
            os.setsid()
            stop_following()
            status = self._look(pids, quiet_s, stirs, tell_if_moving)
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
