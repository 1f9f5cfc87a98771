"""A thread that C has started takes the GIL as it should, and then hands the interpreter a bad object.
The near miss of native_gil_not_held: the same image, the same kind of thread, and the GIL has nothing to do with it."""

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
    "headline": ["native_faults", "start_worker"],
    "not_in_headline": ["GIL"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_call_in_native_thread.argtypes = [ctypes.c_void_p] * 3


def address_of(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def start_worker(function, argument):
    ensure = address_of(ctypes.pythonapi.PyGILState_Ensure)
    print("ended", library.zoo_call_in_native_thread(ensure, function, argument))


if "--control" in sys.argv:
    library.zoo_call_in_native_thread(None, address_of(library.zoo_answer), None)
else:
    start_worker(address_of(ctypes.pythonapi.PyObject_Type), 0x10)
