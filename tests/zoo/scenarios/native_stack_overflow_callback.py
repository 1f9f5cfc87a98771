"""A C function calls Python, which calls the C function again, each time with 16 KiB of stack.
500 levels are 8 MiB, well below Python's recursion limit of 1000: no RecursionError comes first."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "stack-overflow",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "visit",
    "component": None,
    "component_function": None,
    "headline": ["visit"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"
VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13"]  # later ones look at the stack themselves and raise, or give up

library = ctypes.CDLL(os.environ["ZOO_LIB"])
DEPTH = 10 if "--control" in sys.argv else 1 << 40


@ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)
def visit(node):
    return library.zoo_visit(visit, node + 1) if node < DEPTH else 0


print("visited", library.zoo_visit(visit, 0))
