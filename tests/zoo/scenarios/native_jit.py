"""Code that was made at run time reads address 0: it lies in memory that can be executed and belongs to no file.
The bytes are `mov (%rdi), %rax; inc %rax; ret`."""

import ctypes
import mmap
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "run_kernel",
    "component": "[JIT-compiled code]",
    "faulting_image": "[JIT-compiled code]",
    "fault": ["read", "null"],
    "headline": ["JIT-compiled code", "called from run_kernel"],
    "not_in_headline": ["???"],
}
CONTROL = {"kind": "clean", "exit": 0}
MACHINES = ["x86_64"]

memory = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7)
memory.write(bytes.fromhex("488b0748ffc0c3"))
kernel = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))


def run_kernel(address):
    print("ran", kernel(address))


number = ctypes.c_long(6)
run_kernel(ctypes.addressof(number) if "--control" in sys.argv else None)
