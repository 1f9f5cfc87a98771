"""The interpreter declares itself broken: a real Py_FatalError.
Py_FatalError prints its own text, "Python runtime state" and the stack, then aborts (pylifecycle.c)."""

import ctypes
import sys

EXPECT = {
    "kind": "python-fatal",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "release_batch",
    "headline": ["embedding cache: negative reference count"],
}
CONTROL = {"kind": "clean", "exit": 0}
SHIM = {
    "status": "supported",
    "because": "Py_FatalError ends faulthandler first, which takes our handler away too: no stack says who gave up",
}


def release_batch(reference_count):
    print("reference count", reference_count)
    if reference_count < 0:
        ctypes.pythonapi.Py_FatalError(b"embedding cache: negative reference count")


release_batch(1 if "--control" in sys.argv else -1)
