"""A C function writes through a pointer that is null.
The page at address 0 is never mapped; the page-fault error code says that the access was a write."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "save_state",
    "component": "native_faults",
    "component_function": "zoo_write",
    "faulting_image": "native_faults",
    "fault": ["write", "null"],
    "headline": ["native_faults", "save_state"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_write.argtypes = [ctypes.c_void_p]


def save_state(slot):
    library.zoo_write(slot)
    print("saved")


slot = ctypes.c_long()
save_state(ctypes.byref(slot) if "--control" in sys.argv else None)
