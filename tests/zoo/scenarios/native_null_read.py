"""A C function reads through a pointer that is null.
The page at address 0 is never mapped (vm.mmap_min_addr), so the kernel delivers SIGSEGV, SEGV_MAPERR, at 0."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "train_step",
    "component": "native_faults",
    "component_function": "zoo_read",
    "faulting_image": "native_faults",
    "fault": ["read", "null"],
    "headline": ["native_faults", "train_step"],
    "not_in_headline": ["exit", "import", "static", "GIL", "JIT", "damaged"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_read.argtypes = [ctypes.c_void_p]


def train_step(token):
    print("token", library.zoo_read(token))


token = ctypes.c_long(6)
train_step(ctypes.byref(token) if "--control" in sys.argv else None)
