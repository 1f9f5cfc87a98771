"""Near-miss: asks for more than any machine has, under an address-space limit that does not exist.
The kernel refuses by itself; no ulimit is in the way, and none is named."""

import sys

EXPECT = {
    "kind": "allocation-failure",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "load_training_set",
    "headline": ["Unable to allocate 1.00 EiB"],
    "not_in_headline": ["ulimit"],
}
CONTROL = {"kind": "clean", "exit": 0}
NEEDS = ["numpy"]


def load_training_set(count):
    import numpy

    print("loaded", len(numpy.empty(count, numpy.uint8)))


load_training_set(1 << 10 if "--control" in sys.argv else 1 << 60)
