"""A shell runs Python as its child; a C function reads address 0 and the shell passes the status on.
The shell itself exits normally with 139 (128 + 11, POSIX sh): the death is the child's."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "child",
    "user_function": "train_step",
    "component": "native_faults",
    "component_function": "zoo_read",
    "faulting_image": "native_faults",
    "fault": ["read", "null"],
    "headline": ["native_faults", "train_step"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"
COMMAND = ["sh", "-c", "'{python}' '{file}' {control}; exit $?"]

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_read.argtypes = [ctypes.c_void_p]


def train_step(token):
    print("token", library.zoo_read(token))


token = ctypes.c_long(6)
train_step(ctypes.byref(token) if "--control" in sys.argv else None)
