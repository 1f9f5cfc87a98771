"""A C function calls abort(3).
raise and abort are libc's; the frame below them is the function that gave up."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "abort",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "train_step",
    "component": "native_faults",
    "component_function": "zoo_abort_unless",
    "faulting_image": "libc",
    "headline": ["native_faults", "train_step"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])


def train_step(healthy):
    library.zoo_abort_unless(healthy)
    print("stepped")


train_step(1 if "--control" in sys.argv else 0)
