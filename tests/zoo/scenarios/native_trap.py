"""A C function runs into a breakpoint instruction with no debugger there.
int3 (x86_64) and brk (aarch64) raise SIGTRAP; faulthandler does not handle it, the link does."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "trap",
    "status": "established",
    "exit": 133,
    "signal": "SIGTRAP",
    "role": "main",
    "user_function": "check_invariant",
    "component": "native_faults",
    "component_function": "zoo_breakpoint",
    "faulting_image": "native_faults",
    "headline": ["native_faults", "check_invariant"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])


def check_invariant(reached):
    library.zoo_breakpoint(reached)
    print("checked")


check_invariant(0 if "--control" in sys.argv else 1)
