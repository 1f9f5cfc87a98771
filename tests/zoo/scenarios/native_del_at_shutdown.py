"""__del__ of a module-level object reads address 0 while the interpreter finalises.
The main program has ended and all its lines are printed; finalize_modules runs the destructor."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "__del__",
    "component": "native_faults",
    "component_function": "zoo_read",
    "faulting_image": "native_faults",
    "fault": ["read", "null"],
    "headline": ["native_faults", "at interpreter exit, after the program's own code had ended", "__del__"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_read.argtypes = [ctypes.c_void_p]
counter = ctypes.c_long(6)


class Pool:
    """Keeps what it needs at the end: module globals may be None by then."""

    def __init__(self, slot):
        self.read, self.slot = library.zoo_read, slot

    def __del__(self):
        self.read(self.slot)


pool = Pool(ctypes.byref(counter) if "--control" in sys.argv else None)
print("trained")
