"""ctypes.CDLL lets go of the GIL, and the function it calls is one of Python's own.
PyDLL is for those. The thread has its Python state, but not the GIL."""

import ctypes
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "forget_error",
    "component": "_ctypes",
    "headline": ["without holding the GIL", "forget_error"],
    "remedy": ["PyDLL"],
}
CONTROL = {"kind": "clean", "exit": 0}
VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15"]  # those that have a GIL


def forget_error(loader):
    loader(None).PyErr_Clear()
    print("forgotten")


forget_error(ctypes.PyDLL if "--control" in sys.argv else ctypes.CDLL)
