"""Ctrl-C: SIGINT becomes KeyboardInterrupt, uncaught.
CPython prints the traceback, restores SIG_DFL and kills itself with SIGINT (exit_sigint, Modules/main.c)."""

import os
import signal
import sys
import time

EXPECT = {
    "kind": "interrupted",
    "status": "established",
    "exit": 130,
    "signal": "SIGINT",
    "role": "main",
    "user_function": "train_until_stopped",
    "headline": ["SIGINT"],
}
CONTROL = {"kind": "clean", "exit": 0}
UNPRIVILEGED = {
    "status": "supported",
    "because": "who sends SIGINT to the command alone the kernel tells root: a program may raise the same itself",
}
SENDS = "SIGINT"


def train_until_stopped():
    print("training")
    if "--control" in sys.argv:
        return
    with open(os.environ["ZOO_READY"], "w") as ready:
        ready.write("ready\n")
    # Not signal.pause(): the C handler only sets a flag, so a signal just before the call would be lost.
    while True:
        time.sleep(0.1)


signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell job starts with SIGINT ignored
train_until_stopped()
