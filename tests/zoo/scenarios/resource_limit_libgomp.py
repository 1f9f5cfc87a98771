"""A second OpenMP thread wants a stack of 4 GiB under an address-space limit of 2 GiB: libgomp says so, and exit(1).
Python is still running then: exit() was called by native code, after the line that names the limit."""

import ctypes
import os
import resource
import sys

EXPECT = {
    "kind": "resource-limit",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "headline": ["libgomp: Thread creation failed"],
}
CONTROL = {"kind": "clean", "exit": 0}
SHIM = {"status": "supported", "because": "only a preloaded library sees who calls exit()"}
BUILD = "native_openmp.c"
BUILD_FLAGS = ["-fopenmp"]


def score_rows():
    library = ctypes.CDLL(os.environ["ZOO_LIB"])
    row = ctypes.byref(ctypes.c_long(6))
    print("score", library.zoo_score_rows(row, row))


if "--control" not in sys.argv:
    os.environ["OMP_STACKSIZE"] = "4G"
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
score_rows()
