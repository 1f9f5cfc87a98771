"""Someone outside sends SIGKILL to a training loop.
SIGKILL cannot be caught and leaves no text; the wait status proves the signal, nothing proves the reason."""

import os
import signal
import sys

EXPECT = {
    "kind": "killed",
    "status": "established",
    "exit": 137,
    "signal": "SIGKILL",
    "role": "main",
    "user_function": None,
    "headline": ["SIGKILL"],
}
CONTROL = {"kind": "clean", "exit": 0}
SENDS = "SIGKILL"


def train_until_stopped():
    print("training")
    if "--control" in sys.argv:
        return
    with open(os.environ["ZOO_READY"], "w") as ready:
        ready.write("ready\n")
    signal.pause()


train_until_stopped()
