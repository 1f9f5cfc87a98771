"""A C function recurses, and on each level calls a function of the interpreter that needs far more of the stack.
It is the interpreter, or the C library below it, that touches the guard page; who recurses is the C function."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "stack-overflow",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "render_tree",
    "component": "native_faults",
    "component_function": "zoo_descend_printing",
    "headline": ["native_faults", "render_tree"],
    "not_in_headline": ["damaged earlier", "GIL"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.PyDLL(os.environ["ZOO_LIB"])
library.zoo_descend_printing.argtypes = [ctypes.c_void_p, ctypes.c_long]


def render_tree(depth):
    library.zoo_descend_printing(ctypes.cast(ctypes.pythonapi.PyUnicode_FromFormat, ctypes.c_void_p), depth)
    print("rendered")


render_tree(100 if "--control" in sys.argv else 1 << 40)
