"""Near-miss: a MemoryError is handled, and handling it fails with a KeyError of its own, which ends the program.
What was merely being handled is printed above it ("During handling of the above exception"), and is no cause."""

import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "shrink_batch",
    "headline": ["KeyError: 'batch_size'"],
}
CONTROL = {"kind": "clean", "exit": 0}


def shrink_batch(settings):
    settings["batch_size"] //= 2


def train_step(settings):
    try:
        raise MemoryError("Unable to allocate 2.21 GiB")
    except MemoryError:
        shrink_batch(settings)


train_step({"batch_size": 32} if "--control" in sys.argv else {})
