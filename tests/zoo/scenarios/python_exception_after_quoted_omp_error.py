"""Near-miss: the log quotes "OMP: Error #15" of an earlier run, then an unrelated ValueError ends this one.
The runtime that prints Error #15 in earnest aborts (SIGABRT); this process exited with 1."""

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

OLD_LOG = "OMP: Error #15: Initializing libomp.so.5, but found libomp.so.5 already initialized."


def train_step(learning_rate):
    if learning_rate < 0:
        raise ValueError("learning rate must not be negative")
    print("step 1 loss 0.71")


print("yesterday's run ended with:", OLD_LOG, file=sys.stderr)
train_step(5e-5 if "--control" in sys.argv else -1.0)
