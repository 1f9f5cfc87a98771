"""A CUDA device-side assertion, printed to its public shape by a library that then aborts, as torch's does.
The text and the abort come from one library, which is not the interpreter: that is what proves it."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "device-assert",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "gather_embeddings",
    "headline": ["IndexKernel.cu"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "libc10_cuda.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])


def gather_embeddings(index, size):
    print("gathering", index)
    library.check_index(ctypes.c_long(index), ctypes.c_long(size))


gather_embeddings(3, size=8 if "--control" in sys.argv else 2)
