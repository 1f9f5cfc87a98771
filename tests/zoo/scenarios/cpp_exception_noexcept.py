"""A C++ exception leaves a noexcept function.
std::terminate: libstdc++ prints "terminate called after throwing an instance of …" and aborts."""

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
BUILD = "cpp_exception_noexcept.cpp"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.read_bank.argtypes = [ctypes.c_long, ctypes.c_long]


def mine_hard_negatives(index):
    library.read_bank(index, 50000)


mine_hard_negatives(100 if "--control" in sys.argv else 50001)
print("mined")
