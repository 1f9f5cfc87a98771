"""A C function reads a mapping after mmap.close().
munmap(2) has taken the pages away and 64 MiB is more than anything maps in between: SEGV_MAPERR."""

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
    "user_function": "read_shard",
    "component": "native_faults",
    "component_function": "zoo_read",
    "faulting_image": "native_faults",
    "fault": ["read", "unmapped"],
    "headline": ["native_faults", "read_shard"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_read.argtypes = [ctypes.c_void_p]


def address_of(mapping):
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def read_shard(address):
    print("first row", library.zoo_read(address))


shard = mmap.mmap(-1, 64 << 20)
address = address_of(shard)
if "--control" not in sys.argv:
    shard.close()
read_shard(address)
