"""A C function writes 32 bytes into a buffer of 16 on its stack.
The canary is gone, the return address is not: __stack_chk_fail prints and aborts with the stack still readable."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "memory-corruption",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "load_row",
    "component": "memory_stack_smash",
    "component_function": "copy_row",
    "faulting_image": "libc",
    "headline": ["stack smashing"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "memory_stack_smash.c"
BUILD_FLAGS = ["-fstack-protector-all"]

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.copy_row.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def load_row(row):
    library.copy_row(row, len(row))
    print("loaded")


load_row(b"x" * (8 if "--control" in sys.argv else 32))
