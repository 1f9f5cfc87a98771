"""A failed assert() in a C function.
__assert_fail and abort are libc's; the frame below them is the function with the assertion."""

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
    "component": "native_faults",
    "component_function": "zoo_assert_total",
    "faulting_image": "libc",
    "headline": ["native_faults", "build_index"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_assert_total.argtypes = [ctypes.c_long, ctypes.c_long]


def build_index(total):
    library.zoo_assert_total(total, 50000)
    print("built")


build_index(50000 if "--control" in sys.argv else 49999)
