"""A native library needs a symbol that nothing loaded provides; the import-time error is not caught.
dlopen(RTLD_NOW) resolves every symbol at load and fails with ld.so's own words, "undefined symbol: …"."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "abi-mismatch",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "load_search_library",
    "headline": ["blas_gemm_v2"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "abi_undefined_symbol.c"


def load_search_library(path):
    ctypes.CDLL(path, mode=os.RTLD_NOW)
    print("loaded")


load_search_library("libm.so.6" if "--control" in sys.argv else os.environ["ZOO_LIB"])
