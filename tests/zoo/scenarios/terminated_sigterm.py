"""Someone outside sends SIGTERM to a training loop.
Python leaves SIGTERM at its default action, so the kernel ends the process with that signal."""

import os
import signal
import sys

EXPECT = {
    "kind": "terminated",
    "status": "established",
    "exit": 143,
    "signal": "SIGTERM",
    "role": "main",
    "user_function": None,
    "headline": ["SIGTERM"],
}
CONTROL = {"kind": "clean", "exit": 0}
SENDS = "SIGTERM"


def train_until_stopped():
    print("training")
    if "--control" in sys.argv:
        return
    with open(os.environ["ZOO_READY"], "w") as ready:
        ready.write("ready\n")
    signal.pause()


train_until_stopped()
