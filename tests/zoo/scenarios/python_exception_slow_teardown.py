"""An uncaught ValueError, then three seconds of atexit that upload and print, as wandb's do.
However long the teardown takes and whatever it prints, the exception ended the program: sys.excepthook ran for it."""

import atexit
import sys
import time

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "train_step",
    "headline": ["ValueError: expected a batch of 16, got 0"],
}
CONTROL = {"kind": "clean", "exit": 0}


def upload():
    print("uploading run history", file=sys.stderr)
    time.sleep(3.0)
    print("uploaded 12 files", file=sys.stderr)


def train_step(batch_size):
    if batch_size == 0:
        raise ValueError("expected a batch of 16, got 0")
    print("step 1 loss 0.71")


if "--control" not in sys.argv:
    atexit.register(upload)
train_step(16 if "--control" in sys.argv else 0)
