"""A shell runs Python as its child and goes on when that segfaults: the command itself ends with 0.
The shell's status is its last command's (POSIX sh), so it is clean; the dead child must be mentioned all the same."""

import ctypes
import sys

EXPECT = {
    "kind": "clean",
    "status": "established",
    "exit": 0,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": ["SIGSEGV", "train_step"],
}
CONTROL = {"kind": "clean", "exit": 0}
COMMAND = ["sh", "-c", "'{python}' '{file}' {control}; echo went on"]


def train_step(address):
    print("token", ctypes.string_at(address))


token = ctypes.create_string_buffer(b"hello")
train_step(ctypes.addressof(token) if "--control" in sys.argv else 0)
