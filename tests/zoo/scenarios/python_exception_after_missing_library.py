"""Near-miss: a library that is missing is logged, done without, and long forgotten when a ValueError ends the program.
The loader's words stand in the log with their traceback; the exception that nothing caught is another."""

import ctypes
import logging
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "train_epoch",
    "headline": ["ValueError"],
}
CONTROL = {"kind": "clean", "exit": 0}


def load_kernels():
    try:
        return ctypes.CDLL("libzoo_kernels.so.1")
    except OSError:
        logging.exception("no fast kernels, going on without")
        return None


def train_epoch(rows, kernels):
    if not rows:
        raise ValueError("libzoo_kernels.so.1: cannot open shared object file, or no rows at all")
    print("trained", len(rows), kernels)


train_epoch([1, 2] if "--control" in sys.argv else [], load_kernels())
