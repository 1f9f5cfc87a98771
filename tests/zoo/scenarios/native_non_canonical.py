"""A C function reads through a pointer made of overwritten memory (0xdeadbeefdeadbeef).
x86_64 raises a general protection fault for it: SI_KERNEL and si_addr 0, although the pointer was not null."""

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
    "fault": ["canonical"],
    "headline": ["native_faults", "train_step"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"
MACHINES = ["x86_64"]

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_read.argtypes = [ctypes.c_void_p]


def train_step(address):
    print("token", library.zoo_read(address))


token = ctypes.c_long(6)
train_step(ctypes.addressof(token) if "--control" in sys.argv else 0xDEADBEEFDEADBEEF)
