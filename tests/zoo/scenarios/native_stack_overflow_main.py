"""A C function calls itself without end on the main thread.
8 MiB are used up and the kernel does not grow the stack further: SEGV_MAPERR close to the stack pointer."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "stack-overflow",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "parse_tree",
    "component": "native_faults",
    "component_function": "zoo_descend",
    "faulting_image": "native_faults",
    "headline": ["parse_tree"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_descend.argtypes = [ctypes.c_long]


def parse_tree(depth):
    library.zoo_descend(depth)
    print("parsed")


parse_tree(100 if "--control" in sys.argv else 1 << 40)
