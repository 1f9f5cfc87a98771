"""The same function of the interpreter is given the same bad object, by an ordinary call: its caller is the component.
The near miss of native_stray_jump: here the return address can be believed."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "ask_type",
    "component": "native_faults",
    "component_function": "zoo_apply",
    "faulting_image": "interpreter",
    "fault": ["read", "null"],
    "headline": ["native_faults", "ask_type"],
    "not_in_headline": ["GIL", "damaged earlier"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.PyDLL(os.environ["ZOO_LIB"])
library.zoo_apply.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
library.zoo_apply.restype = ctypes.c_long


def ask_type(address):
    print("answered", library.zoo_apply(ctypes.cast(ctypes.pythonapi.PyObject_Type, ctypes.c_void_p), address))


ask_type(id(object) if "--control" in sys.argv else 0x10)
