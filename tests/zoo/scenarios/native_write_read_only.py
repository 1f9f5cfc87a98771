"""A C function writes to a constant of its own library.
The linker puts it into a page mapped r--: SEGV_ACCERR, a write to memory that exists."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "grow_vocabulary",
    "component": "native_faults",
    "component_function": "zoo_write_constant",
    "faulting_image": "native_faults",
    "fault": ["write", "read-only"],
    "headline": ["native_faults", "grow_vocabulary"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_write_constant.argtypes = [ctypes.c_void_p]


def grow_vocabulary(size):
    library.zoo_write_constant(size)
    print("grown")


size = ctypes.c_long(50257)
grow_vocabulary(ctypes.byref(size) if "--control" in sys.argv else None)
