"""Near-miss: a helper was killed and collected long ago; the message of a later ValueError holds the helper's pid.
A number in a text names no process: the command ended of its own exception."""

import os
import signal
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "check_rows",
    "headline": ["ValueError"],
}
CONTROL = {"kind": "clean", "exit": 0}


def kill_helper():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return pid


def check_rows(expected):
    raise ValueError(f"expected {expected} rows, {expected}00 were there")


if "--control" not in sys.argv:
    check_rows(kill_helper())
