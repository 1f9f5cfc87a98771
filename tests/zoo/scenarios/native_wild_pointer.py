"""A C function reads through a pointer that never was one.
Far from the program, its heap, its libraries and its stack there is nothing: SEGV_MAPERR at that address."""

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
    "fault": ["read", "unmapped"],
    "headline": ["native_faults", "train_step"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_read.argtypes = [ctypes.c_void_p]
NOWHERE = 0x123456789000


def train_step(address):
    print("token", library.zoo_read(address))


token = ctypes.c_long(6)
train_step(ctypes.addressof(token) if "--control" in sys.argv else NOWHERE)
