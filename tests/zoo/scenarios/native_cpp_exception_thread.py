"""A C++ exception escapes from a std::thread while the main thread waits for it.
No frame catches it, so __cxa_throw calls std::terminate with the throwing function still on the stack."""

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
    "context_function": "wait_for_reader",
    "component": "native_faults_cpp",
    "component_function": "zoo_read_shard",
    "faulting_image": "libc",
    "headline": ["std::runtime_error"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults_cpp.cpp"

library = ctypes.CDLL(os.environ["ZOO_LIB"])


def wait_for_reader(missing):
    library.zoo_prefetch(missing)
    print("read")


wait_for_reader(0 if "--control" in sys.argv else 1)
