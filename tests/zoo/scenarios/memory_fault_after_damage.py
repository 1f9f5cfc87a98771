"""The C library finds the heap damaged and calls abort(); the program's handler of SIGABRT faults in its turn.
What ends the process is SIGSEGV, at a place that says nothing: the damage came first, and was told."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "memory-corruption",
    "status": "supported",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "release",
    "component": "_ctypes",
    "faulting_image": "native_faults",
    "headline": ["Memory was found damaged", "free(): invalid", "release"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"
SIGABRT = 6

library = ctypes.CDLL(os.environ["ZOO_LIB"])
libc = ctypes.CDLL(None)
libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.signal.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.calloc.argtypes, libc.calloc.restype = [ctypes.c_size_t, ctypes.c_size_t], ctypes.c_void_p


def release(offset):
    libc.free(libc.calloc(1, 100) + offset)
    print("released")


# Called with the number of the signal, it reads that address.
libc.signal(SIGABRT, ctypes.cast(library.zoo_read, ctypes.c_void_p))
release(0 if "--control" in sys.argv else 8)
