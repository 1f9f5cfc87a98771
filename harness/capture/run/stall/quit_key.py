"""Ctrl-\\ at the terminal of a supervised command: who gets it, and how it is made not to be fatal.

The terminal sends SIGQUIT to its whole foreground group, which is harness and the command, and nobody can be left out.
So that the job goes on, it must not die of it: where stdin is the terminal, the command starts with SIGQUIT ignored,
as under nohup with SIGHUP. That is the one disposition which differs from a bare run. A program that sets a handler of
its own (faulthandler.register, a JVM) has it called as ever. A process that ignores SIGQUIT cannot be ended by it:
when it is to be passed on after all, it goes as SIGABRT, which ends, dumps core and is as rarely handled.
"""

from __future__ import annotations

import contextlib
import os
import signal

from harness.capture.proc import read_status_fields


def is_asked_by_key() -> bool:
    """Whether Ctrl-\\ reaches us: stdin is a terminal with us in its foreground, and SIGQUIT has its default action."""
    try:
        at_terminal = os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
    return at_terminal and signal.getsignal(signal.SIGQUIT) == signal.SIG_DFL


def pass_quit_on(pid: int, pidfd: int) -> None:
    """To one that the terminal has sent it to, and that ignored it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == os.getpgrp() and ignores_quit(pid):
            signal.pidfd_send_signal(pidfd, signal.SIGABRT)


def ignores_quit(pid: int) -> bool:
    try:
        mask = int(read_status_fields(pid)["SigIgn"][0], 16)
    except OSError:
        return False
    return bool(mask >> signal.SIGQUIT - 1 & 1)
