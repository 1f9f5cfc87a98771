"""A shared-memory file is larger than the /dev/shm it is in, and is filled.
tmpfs has no page left for the write: SIGBUS at an address inside the mapping of a /dev/shm file."""

import ctypes
import mmap
import os
import sys

EXPECT = {
    "kind": "shared-memory-full",
    "status": "established",
    "exit": 135,
    "signal": "SIGBUS",
    "role": "main",
    "user_function": "share_batch",
    "component": "native_faults",
    "component_function": "zoo_fill",
    "faulting_image": "libc",
    "fault": ["/dev/shm"],
    "headline": ["share_batch"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"
NEEDS_ROOT = True
NEEDS_MOUNTED_ROOT = True
COMMAND = [
    "unshare",
    "-m",
    "sh",
    "-c",
    "mount --make-private /dev/shm && mount -t tmpfs -o size=64k tmpfs /dev/shm && exec '{python}' '{file}' {control}",
]

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_fill.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def share_batch(address, size):
    library.zoo_fill(address, size)
    print("shared")


size = (32 if "--control" in sys.argv else 1024) << 10
with open("/dev/shm/zoo_batch", "w+b") as file:
    file.truncate(size)
    batch = mmap.mmap(file.fileno(), size)
share_batch(ctypes.addressof(ctypes.c_char.from_buffer(batch)), size)
