"""A library's ELF destructor writes address 0 after the interpreter has finalised.
exit(3) runs DT_FINI_ARRAY when Py_Main has returned: there is no Python frame and no interpreter left."""

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
    "context_function": None,
    "component": "native_destructor",
    "component_function": "zoo_release_pool",
    "faulting_image": "native_destructor",
    "fault": ["write", "null"],
    "headline": [
        "native_destructor",
        "in a static destructor of native_destructor.so",
        "while the process was exiting",
    ],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_destructor.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])

if "--control" not in sys.argv:
    library.zoo_lose_pool()
print("trained")
