"""Runs a supervisor in a process and a session of its own, so that the keyboard and our own output are not its concern.

What it supervises is known here only by its pid and the case that it writes. Does not look at it, and does not judge.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from harness.errors import EXIT_OUR_BUG, HarnessError

# (tell: the command's pid and its case, as soon as it runs)
Work = Callable[[Callable[[int, Path], None]], None]
_LEAVE_S = 2.0  # after SIGTERM, before SIGKILL
_GATHER_S = 20.0


class Apart:
    """`log`: what the supervisor itself says. It is ended with `end`, or ends when its command does."""

    def __init__(self, work: Work, log: Path) -> None:
        self.command_pid: int | None = None
        self.case: Path | None = None
        self._pidfd: int | None = None
        self._status: int | None = None
        self._news, news = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._news)
            _supervise(work, log, news)
        os.close(news)

    def poll(self) -> int | None:
        """The supervisor's exit status, once it has ended."""
        if self.command_pid is None:
            self._read_news()
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def _read_news(self) -> None:
        if select.select([self._news], [], [], 0)[0] and (line := os.read(self._news, 4096)):
            pid, case = json.loads(line)
            self.command_pid, self.case = pid, Path(case)
            with contextlib.suppress(OSError, AttributeError):  # it may be over already; macOS has none
                self._pidfd = os.pidfd_open(pid)

    def end(self) -> None:
        """Ends the command, and waits until its supervisor has written down how it ended."""
        for signo, patience_s in ((signal.SIGTERM, _LEAVE_S), (signal.SIGKILL, _GATHER_S)):
            self._send(signo)
            until = time.monotonic() + patience_s
            while time.monotonic() < until:
                if self.poll() is not None:
                    return
                time.sleep(0.01)
        os.kill(self.pid, signal.SIGKILL)  # not collected, so it is still ours
        _, status = os.waitpid(self.pid, 0)
        self._status = os.waitstatus_to_exitcode(status)

    def _send(self, signo: signal.Signals) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signo)
        elif self.poll() is None:  # its supervisor has not collected it or not started it
            os.kill(self.command_pid or self.pid, signo)

    def close(self) -> None:
        os.close(self._news)
        if self._pidfd is not None:
            os.close(self._pidfd)


def _supervise(work: Work, log: Path, news: int) -> NoReturn:
    """In the child; it must not come back."""
    status = EXIT_OUR_BUG
    try:
        os.setsid()
        for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signo, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for fd, source in ((0, nowhere), (1, nowhere), (2, said)):
            os.dup2(source, fd)

        def tell(pid: int, case: Path) -> None:
            os.write(news, json.dumps([pid, str(case)]).encode())

        work(tell)
        status = 0
    except HarnessError as error:
        os.write(2, f"{error}\n".encode())
        status = error.exit_code
    except BaseException:  # noqa: BLE001 (it must not come back into the command, and not end without a word)
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)
