"""A thread that C has started calls into Python without PyGILState_Ensure.
PyErr_Clear looks for the thread state of whoever holds the GIL; this thread has none, and the main thread let go."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": None,
    "context_function": "start_worker",
    "component": "native_faults",
    "component_function": "call_in_thread",
    "headline": ["native_faults", "without holding the GIL", "start_worker"],
    "remedy": ["PyGILState_Ensure"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_call_in_native_thread.argtypes = [ctypes.c_void_p] * 3


def address_of(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def start_worker(enter):
    print("ended", library.zoo_call_in_native_thread(enter, address_of(ctypes.pythonapi.PyErr_Clear), None))


if "--control" in sys.argv:
    # Ensure is not undone there, so nobody else could go on: the interpreter is left without being finalised.
    library.zoo_call_in_native_thread(None, address_of(library.zoo_answer), None)
else:
    start_worker(None)
