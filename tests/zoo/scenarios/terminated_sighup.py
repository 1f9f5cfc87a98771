"""The terminal goes away: SIGHUP reaches a training loop.
Python leaves SIGHUP at its default action, so the kernel ends the process with that signal."""

import os
import signal
import sys

EXPECT = {
    "kind": "terminated",
    "status": "established",
    "exit": 129,
    "signal": "SIGHUP",
    "role": "main",
    "user_function": None,
    "headline": ["SIGHUP"],
}
CONTROL = {"kind": "clean", "exit": 0}
SENDS = "SIGHUP"


def train_until_stopped():
    print("training")
    if "--control" in sys.argv:
        return
    with open(os.environ["ZOO_READY"], "w") as ready:
        ready.write("ready\n")
    signal.pause()


signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup would have it ignored
train_until_stopped()
