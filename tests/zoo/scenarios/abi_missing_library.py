"""A native library needs another one that is not installed; the error of its load is not caught.
The copy that is loaded asks for libq.so.6 where the original asks for libm.so.6: dlopen says what it did not find."""

import ctypes
import os
import sys
import tempfile

EXPECT = {
    "kind": "abi-mismatch",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "load_kernels",
    "headline": ["libq.so.6: cannot open shared object file"],
    "remedy": ["Install the library that is missing"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "abi_missing_library.c"
BUILD_FLAGS = ["-Wl,--no-as-needed", "-lm"]


def make_kernels(needed):
    with open(os.environ["ZOO_LIB"], "rb") as library:
        content = library.read()
    with tempfile.NamedTemporaryFile(suffix=".so", delete=False) as copy:
        copy.write(content.replace(b"libm.so.6", needed))
    return copy.name


def load_kernels(path):
    print("loaded", ctypes.CDLL(path).scale(21))


load_kernels(make_kernels(b"libm.so.6" if "--control" in sys.argv else b"libq.so.6"))
