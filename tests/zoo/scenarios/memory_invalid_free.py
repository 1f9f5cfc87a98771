"""free() is given an address inside a block instead of its start.
glibc sees a misaligned chunk, prints "free(): invalid pointer" and aborts (malloc_printerr)."""

import ctypes
import sys

EXPECT = {
    "kind": "memory-corruption",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "release_buffer",
    "headline": ["invalid pointer"],  # said by free() or munmap_chunk(), as the bytes before it happen to be
}
CONTROL = {"kind": "clean", "exit": 0}

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


def release_buffer(offset):
    libc.free(libc.malloc(4096) + offset)


release_buffer(0 if "--control" in sys.argv else 8)
print("released")
