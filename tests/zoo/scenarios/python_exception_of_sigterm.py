"""Someone outside sends SIGTERM, and the program's own handler turns it into an exception, as torchrun's does.
It leaves with status 1, in which no signal stands: the exception is what ended it, SIGTERM what it was told."""

import os
import signal
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "leave",
    "headline": ["SignalException", "got signal 15"],
}
CONTROL = {"kind": "clean", "exit": 0}
SENDS = "SIGTERM"


class SignalException(Exception):
    pass


def leave(signo, frame):
    raise SignalException(f"got signal {signo}")


def train_until_stopped():
    print("training")
    if "--control" in sys.argv:
        return
    with open(os.environ["ZOO_READY"], "w") as ready:
        ready.write("ready\n")
    signal.pause()


signal.signal(signal.SIGTERM, leave)
train_until_stopped()
