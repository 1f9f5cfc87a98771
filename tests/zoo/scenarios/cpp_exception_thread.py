"""A C++ exception escapes from a std::thread while the main thread waits for it.
std::terminate on a native thread: it has no Python frame, faulthandler can only name innocent threads."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "cpp-exception",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": None,
    "headline": ["std::runtime_error"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "cpp_exception_thread.cpp"
BUILD_FLAGS = ["-pthread"]

library = ctypes.CDLL(os.environ["ZOO_LIB"])


def load_batch(missing):
    library.prefetch(missing)


load_batch(0 if "--control" in sys.argv else 1)
print("loaded")
