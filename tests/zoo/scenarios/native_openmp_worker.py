"""The second thread of an OpenMP team reads address 0.
The master's row is good, the worker's is null: the faulting thread is libgomp's own and has no Python frame."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": None,
    "context_function": "score_candidates",
    "component": "native_openmp",
    "component_function": "zoo_score_row",
    "faulting_image": "native_openmp",
    "fault": ["read", "null"],
    "headline": ["native_openmp", "score_candidates"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_openmp.c"
BUILD_FLAGS = ["-fopenmp"]

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_score_rows.argtypes = [ctypes.c_void_p, ctypes.c_void_p]


def score_candidates(good, suspect):
    print("score", library.zoo_score_rows(good, suspect))


row = ctypes.c_long(6)
score_candidates(ctypes.byref(row), ctypes.byref(row) if "--control" in sys.argv else None)
