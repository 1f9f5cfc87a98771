"""Near-miss: shows an old log in which glibc found the heap damaged, goes on, and fails an assert() in a C library.
glibc prints both and calls abort() after both: what it printed last is why."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "abort",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "build_index",
    "headline": ["build_index", "ntotal == expected"],
    "not_in_headline": ["damaged", "free()"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "abort_c_assert.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.add_vectors.argtypes = [ctypes.c_long, ctypes.c_long]


def build_index(ntotal):
    library.add_vectors(ntotal, 50000)


print("free(): invalid pointer", file=sys.stderr)
print("that was yesterday; going on", file=sys.stderr, flush=True)
build_index(50000 if "--control" in sys.argv else 49999)
print("built")
