"""A library reads address 0 in its constructor, while dlopen is still loading it.
ld.so calls DT_INIT_ARRAY functions before dlopen returns: the frame below the constructor is ld.so's."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "load_driver",
    "component": "native_constructor",
    "component_function": "zoo_find_devices",
    "faulting_image": "native_constructor",
    "fault": ["read", "null"],
    "headline": ["native_constructor", "in a static constructor of native_constructor.so", "load_driver"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_constructor.c"


def load_driver(path):
    library = ctypes.CDLL(path)
    print("devices", ctypes.c_long.in_dll(library, "zoo_devices").value)


if "--control" not in sys.argv:
    os.environ["ZOO_NO_DRIVER"] = "1"
load_driver(os.environ["ZOO_LIB"])
