"""Asks for 8 GiB under an address-space limit of 2 GiB; the MemoryError is not caught.
RLIMIT_AS makes mmap fail with ENOMEM and CPython raises MemoryError: memory refused, nobody killed."""

import resource
import sys

EXPECT = {
    "kind": "allocation-failure",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "load_training_set",
    "headline": ["MemoryError", "limited to 2.00 GiB (ulimit -v)"],
}
CONTROL = {"kind": "clean", "exit": 0}


def load_training_set(size_bytes):
    rows = bytearray(size_bytes)
    print("loaded", len(rows))


resource.setrlimit(resource.RLIMIT_AS, (2 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
load_training_set(1 << 20 if "--control" in sys.argv else 8 << 30)
