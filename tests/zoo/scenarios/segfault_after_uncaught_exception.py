"""A ValueError that nothing catches ends the program; as the interpreter is torn down a finaliser calls into a
library that reads through a null pointer. The signal ended it, and the exception came before: both are told."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "component": "native_faults",
    "headline": ["native_faults"],
    "grounds": ["nothing caught ValueError: bad row 7, in read_row"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"


class Store:
    def __init__(self, address):
        self.library = ctypes.CDLL(os.environ["ZOO_LIB"])
        self.address = ctypes.c_void_p(address)

    def __del__(self):
        self.library.zoo_read(self.address)


def read_row(row):
    if row is None:
        raise ValueError("bad row 7")


number = ctypes.c_long(6)
store = Store(ctypes.addressof(number) if "--control" in sys.argv else None)
read_row(7 if "--control" in sys.argv else None)
