"""A library is unloaded while the program runs, and the destructor of its static object writes address 0.
The near miss of native_destructor: dlclose() runs destructors by the same function as exit()."""

import _ctypes
import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "unload",
    "component": "native_library_closed",
    "faulting_image": "native_library_closed",
    "fault": ["write", "null"],
    "headline": ["in a static destructor of native_library_closed.so", "unload"],
    "not_in_headline": ["exiting", "at interpreter exit"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_library_closed.cpp"


def unload(library):
    _ctypes.dlclose(library._handle)


plugin = ctypes.CDLL(os.environ["ZOO_LIB"])
if "--control" not in sys.argv:
    plugin.zoo_lose_pool()
unload(plugin)
print("unloaded")
