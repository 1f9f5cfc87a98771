"""Near-miss: the last line is libgomp's own, to the letter, and native code calls exit() while Python is running, as
libgomp does; but it is not libgomp that calls it (resource_limit_libgomp is the twin)."""

import ctypes
import sys

EXPECT = {
    "kind": "exit-nonzero",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": ["exit status 1"],
}
CONTROL = {"kind": "clean", "exit": 0}
SHIM = {
    "kind": "resource-limit",
    "status": "supported",
    "headline": ["libgomp"],
    "because": "only a preloaded library sees who calls exit(): the line may be meant or quoted",
}

print("libgomp: Thread creation failed: Resource temporarily unavailable", file=sys.stderr, flush=True)
ctypes.CDLL(None).exit(0 if "--control" in sys.argv else 1)
