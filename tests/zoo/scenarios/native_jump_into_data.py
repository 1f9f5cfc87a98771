"""A C function calls a pointer that leads into a buffer on the heap.
The heap is not executable: SEGV_ACCERR with si_addr equal to the program counter, which is in no image."""

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
    "fault": ["jump", "execut"],
    "headline": ["native_faults", "run_kernel"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_call.argtypes = [ctypes.c_void_p]


def run_kernel(kernel):
    print("answer", library.zoo_call(kernel))


code = ctypes.create_string_buffer(b"\x90" * 4096)
run_kernel(library.zoo_answer if "--control" in sys.argv else code)
