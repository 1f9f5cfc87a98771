"""A C function reads the first word behind a mapping.
The second half of the mapping was given back with munmap(2): the address is exactly where the first half ends."""

import ctypes
import mmap
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "read_row",
    "component": "native_faults",
    "component_function": "zoo_read",
    "faulting_image": "native_faults",
    "fault": ["read", "past the end"],
    "headline": ["native_faults", "read_row"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_read.argtypes = [ctypes.c_void_p]
libc = ctypes.CDLL(None, use_errno=True)
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
HALF = 8 << 20


def read_row(bank, offset):
    print("row", library.zoo_read(bank + offset))


mapping = mmap.mmap(-1, 2 * HALF)
bank = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
if "--control" not in sys.argv and libc.munmap(bank + HALF, HALF) != 0:
    sys.exit("munmap: " + os.strerror(ctypes.get_errno()))
read_row(bank, HALF)
