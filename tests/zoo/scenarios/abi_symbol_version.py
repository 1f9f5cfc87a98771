"""A native library was built against a newer C library than the one that is here; the error is not caught.
The copy that is loaded asks for version GLIBC_9.2.5 of a symbol, which the C library of this machine does not have."""

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
    "headline": ["version `GLIBC_9.2.5' not found"],
    "remedy": ["readelf -V"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "abi_symbol_version.c"
MACHINES = ["x86_64"]  # elsewhere the C library's first version has another name


def make_kernels(version):
    with open(os.environ["ZOO_LIB"], "rb") as library:
        content = library.read()
    with tempfile.NamedTemporaryFile(suffix=".so", delete=False) as copy:
        copy.write(content.replace(b"GLIBC_2.2.5", version))
    return copy.name


def load_kernels(path):
    print("loaded", ctypes.CDLL(path).find_environment())


load_kernels(make_kernels(b"GLIBC_2.2.5" if "--control" in sys.argv else b"GLIBC_9.2.5"))
