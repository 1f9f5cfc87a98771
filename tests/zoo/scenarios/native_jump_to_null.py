"""A C function calls a function pointer that is null.
The program counter is 0, in no image; the return address on the stack is the caller's."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "run_kernel",
    "component": "native_faults",
    "component_function": "zoo_call",
    "faulting_image": None,
    "fault": ["jump", "null"],
    "headline": ["native_faults", "run_kernel"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_call.argtypes = [ctypes.c_void_p]


def run_kernel(kernel):
    print("answer", library.zoo_call(kernel))


run_kernel(library.zoo_answer if "--control" in sys.argv else None)
