"""A block of the C heap is freed twice.
glibc's free() finds the block already free, prints "double free …" and aborts (malloc_printerr)."""

import ctypes
import sys

EXPECT = {
    "kind": "memory-corruption",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "release_buffer",
    "headline": ["double free"],
}
CONTROL = {"kind": "clean", "exit": 0}

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


def release_buffer(times):
    buffer = libc.malloc(4096)
    for _ in range(times):
        libc.free(buffer)


release_buffer(1 if "--control" in sys.argv else 2)
print("released")
