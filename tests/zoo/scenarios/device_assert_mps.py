"""A failed assertion of Metal Performance Shaders, printed to its public shape by a library that then aborts.
MPS checks its arguments with MTLReportFailure, which prints "failed assertion `…'" and calls abort()."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "device-assert",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "push_memory_bank",
    "headline": ["MPS"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "libMPSCore.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])


def push_memory_bank(total_bytes):
    print("pushing", total_bytes)
    library.check_bytes(ctypes.c_longlong(total_bytes))


push_memory_bank(2**20 if "--control" in sys.argv else 2**33)
