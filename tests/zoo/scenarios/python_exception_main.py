"""A ValueError nobody catches ends the main thread.
The interpreter prints the traceback last and exits with 1 (Py_RunMain, PyErr_Print)."""

import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "train_step",
    "headline": ["ValueError"],
}
CONTROL = {"kind": "clean", "exit": 0}


def train_step(batch_size):
    if batch_size == 0:
        raise ValueError("expected a batch of 16, got 0")
    print("step 1 loss 0.71")


train_step(16 if "--control" in sys.argv else 0)
