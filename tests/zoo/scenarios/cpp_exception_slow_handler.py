"""A C++ exception that nobody catches, in a program whose own handler of SIGABRT takes six seconds before it gives up.
"terminate called" was printed long before the process was gone; the C++ runtime is what called abort()."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "cpp-exception",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "mine_hard_negatives",
    "headline": ["std::runtime_error"],
}
CONTROL = {"kind": "clean", "exit": 0}
SHIM = {
    "status": "supported",
    "user_function": ...,
    "because": "the program's handler replaces ours: no stack says who called abort()",
}
BUILD = "cpp_exception_slow_handler.cpp"
SLOW = True

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.read_bank.argtypes = [ctypes.c_long, ctypes.c_long]


def mine_hard_negatives(index):
    library.read_bank(index, 50000)


mine_hard_negatives(100 if "--control" in sys.argv else 50001)
print("mined")
