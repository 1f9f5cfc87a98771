"""Loads a library for a 32-bit machine into a 64-bit process; the error is not caught.
Only the header is read: the loader refuses by the class that stands there."""

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
    "headline": ["wrong ELF class: ELFCLASS32"],
    "remedy": ["for the processor that this Python runs on"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "abi_missing_library.c"
BUILD_FLAGS = ["-Wl,--no-as-needed", "-lm"]


def make_kernels(elf_class):
    with open(os.environ["ZOO_LIB"], "rb") as library:
        content = bytearray(library.read())
    content[4] = elf_class
    with tempfile.NamedTemporaryFile(suffix=".so", delete=False) as copy:
        copy.write(content)
    return copy.name


def load_kernels(path):
    print("loaded", ctypes.CDLL(path).scale(21))


load_kernels(make_kernels(2 if "--control" in sys.argv else 1))
