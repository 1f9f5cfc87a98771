"""A C++ library asks for 8 GiB under an address-space limit of 2 GiB; nobody catches std::bad_alloc.
The C++ runtime prints what was thrown and aborts: memory refused, not an OOM kill."""

import ctypes
import os
import resource
import sys

EXPECT = {
    "kind": "allocation-failure",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "index_vectors",
    "headline": ["std::bad_alloc", "limited to 2.00 GiB (ulimit -v)"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "allocation_failure_bad_alloc.cpp"


def index_vectors(library, size_bytes):
    print("indexed", bool(library.build_index(ctypes.c_size_t(size_bytes))))


library = ctypes.CDLL(os.environ["ZOO_LIB"])
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
index_vectors(library, 1 << 20 if "--control" in sys.argv else 8 << 30)
