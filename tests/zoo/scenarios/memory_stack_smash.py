"""A C function writes past a buffer on its stack.
The compiler's canary no longer matches: __stack_chk_fail prints "stack smashing detected" and aborts."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "memory-corruption",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "load_batch",
    "headline": ["stack smashing"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "memory_stack_smash.c"
BUILD_FLAGS = ["-fstack-protector-all"]

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.copy_row.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def load_batch(row):
    library.copy_row(row, len(row))


load_batch(b"x" * (8 if "--control" in sys.argv else 64))
print("loaded")
