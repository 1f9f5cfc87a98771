"""A failed assert() in a C library.
glibc's __assert_fail prints "FILE:LINE: FUNCTION: Assertion `…' failed." and aborts; no device is in it."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "abort",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "build_index",
    "headline": ["build_index"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "abort_c_assert.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.add_vectors.argtypes = [ctypes.c_long, ctypes.c_long]


def build_index(ntotal):
    library.add_vectors(ntotal, 50000)


build_index(50000 if "--control" in sys.argv else 49999)
print("built")
