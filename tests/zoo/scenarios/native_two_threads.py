"""Two native threads read address 0 at the same moment.
A barrier releases both; whichever fault the kernel delivers first ends the process."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": None,
    "context_function": "wait_for_workers",
    "component": "native_faults",
    "component_function": "zoo_read",
    "faulting_image": "native_faults",
    "fault": ["read", "null"],
    "headline": ["native_faults", "wait_for_workers"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_read_in_two_threads.argtypes = [ctypes.c_void_p]


def wait_for_workers(token):
    if library.zoo_read_in_two_threads(token) != 0:
        sys.exit("no threads")
    print("joined")


token = ctypes.c_long(6)
wait_for_workers(ctypes.byref(token) if "--control" in sys.argv else None)
