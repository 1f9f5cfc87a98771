"""ctypes is told to give back a reference to an object that is none.
The near miss of native_damage_noticed_late: the caller on the stack handed the bad pointer over."""

import ctypes
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "give_back",
    "component": "_ctypes",
    "faulting_image": "interpreter",
    "headline": ["give_back"],
    "not_in_headline": ["damaged earlier", "GIL"],
}
STRIPPED = {"because": "a function without a name may be the one that runs Python code", "component": ...}
CONTROL = {"kind": "clean", "exit": 0}
WILD = 0x123456789000

release = ctypes.pythonapi.Py_DecRef
release.argtypes = [ctypes.c_void_p]


def give_back(address):
    release(address)
    print("given back")


give_back(None if "--control" in sys.argv else WILD)
