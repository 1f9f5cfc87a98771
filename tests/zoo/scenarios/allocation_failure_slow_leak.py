"""Leaks a little at a time under an address-space limit, until 1 MB more is refused.
RLIMIT_AS refuses when there is no room for that; between the last look and the end the room was used up."""

import resource
import sys
import time

EXPECT = {
    "kind": "allocation-failure",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "train_epoch",
    "headline": ["MemoryError", "limited to 512 MiB (ulimit -v)"],
    "remedy": ["ulimit -v unlimited"],
}
CONTROL = {"kind": "clean", "exit": 0}
NEEDS = ["numpy"]


def train_epoch(numpy, steps):
    kept = []
    for _ in range(steps):
        kept.append(numpy.ones(1 << 17))
        time.sleep(0.01)
    print("trained", len(kept))


def main():
    import numpy

    resource.setrlimit(resource.RLIMIT_AS, (512 << 20, resource.getrlimit(resource.RLIMIT_AS)[1]))
    train_epoch(numpy, 3 if "--control" in sys.argv else 1000)


main()
