"""A C function divides an int by 0.
idiv raises #DE on x86_64: SIGFPE, FPE_INTDIV. (aarch64 gives 0 and goes on.)"""

import ctypes
import os
import sys

EXPECT = {
    "kind": "arithmetic",
    "status": "established",
    "exit": 136,
    "signal": "SIGFPE",
    "role": "main",
    "user_function": "normalise_batch",
    "component": "native_faults",
    "component_function": "zoo_divide",
    "faulting_image": "native_faults",
    "headline": ["native_faults", "normalise_batch"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"
MACHINES = ["x86_64"]

library = ctypes.CDLL(os.environ["ZOO_LIB"])


def normalise_batch(count):
    print("mean", library.zoo_divide(6, count))


normalise_batch(3 if "--control" in sys.argv else 0)
