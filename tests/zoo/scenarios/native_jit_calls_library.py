"""Code that was made at run time calls a library as it should, and the library reads address 0.
The near miss of native_jit: compiled code is on the stack, and did not fault. The bytes are
`sub $8, %rsp; call *%rsi; add $8, %rsp; ret`."""

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
    "user_function": "run_kernel",
    "component": "native_faults",
    "component_function": "zoo_read",
    "faulting_image": "native_faults",
    "fault": ["read", "null"],
    "headline": ["native_faults", "run_kernel"],
    "not_in_headline": ["JIT"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"
MACHINES = ["x86_64"]

library = ctypes.CDLL(os.environ["ZOO_LIB"])
memory = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7)
memory.write(bytes.fromhex("4883ec08ffd64883c408c3"))
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
kernel = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)(start)


def run_kernel(address):
    print("ran", kernel(address, ctypes.cast(library.zoo_read, ctypes.c_void_p)))


number = ctypes.c_long(6)
run_kernel(ctypes.addressof(number) if "--control" in sys.argv else None)
