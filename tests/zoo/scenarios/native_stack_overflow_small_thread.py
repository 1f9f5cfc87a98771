"""A C function calls itself without end on a native thread with a stack of 64 KiB.
The address is in the guard page below that stack; without an alternate stack no handler can even start."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "stack-overflow",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": None,
    "context_function": "wait_for_parser",
    "component": "native_faults",
    "component_function": "zoo_descend",
    "faulting_image": "native_faults",
    "headline": ["wait_for_parser"],
}
SHIM = {
    "because": "nobody gives the native thread an alternate stack, so no handler can start",
    "kind": "segfault",
    "context_function": None,
    "component": ...,
    "component_function": ...,
    "faulting_image": ...,
    "headline": [],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_descend_in_small_thread.argtypes = [ctypes.c_long]


def wait_for_parser(depth):
    if library.zoo_descend_in_small_thread(depth) != 0:
        sys.exit("no thread")
    print("parsed")


wait_for_parser(10 if "--control" in sys.argv else 1 << 40)
