"""A native library with thread-local memory of the initial-exec kind is loaded into a process that already runs.
That memory has to fit into the block that was laid out at the start; a megabyte does not."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "abi-mismatch",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "load_runtime",
    "component": "abi_static_tls",
    "headline": ["cannot allocate memory in static TLS block"],
    "remedy": ["Load that library first", "optional_static_tls"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "abi_static_tls.c"


def load_runtime(path):
    ctypes.CDLL(path)
    print("loaded")


load_runtime("libm.so.6" if "--control" in sys.argv else os.environ["ZOO_LIB"])
