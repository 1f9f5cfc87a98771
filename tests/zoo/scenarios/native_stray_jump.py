"""Control reaches a function of the interpreter by a jump, with a stack that no call has made.
Where the return address belongs lies the start of zlib's inflate: an unwinder goes on there, and zlib never ran."""

import ctypes
import os
import sys
import zlib  # noqa: F401 (so that libz is there to be blamed)

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "stray",
    "component": "interpreter",
    "faulting_image": "interpreter",
    "fault": ["read", "null"],
    "headline": ["stray"],
    "not_in_headline": ["libz", "zlib"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"
MACHINES = ["x86_64"]
NEEDS_FILES = ["/usr/lib/x86_64-linux-gnu/libz.so.1"]

library = ctypes.PyDLL(os.environ["ZOO_LIB"])
library.zoo_stray.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
lure = ctypes.cast(ctypes.CDLL("libz.so.1").inflate, ctypes.c_void_p)
function = ctypes.cast(ctypes.pythonapi.PyObject_Type, ctypes.c_void_p)


def stray():
    library.zoo_stray(function, 0x10, lure)


if "--control" not in sys.argv:
    stray()
