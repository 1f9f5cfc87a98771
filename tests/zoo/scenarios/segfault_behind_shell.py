"""A shell runs Python as its child; Python segfaults and the shell passes the status on with exit $?.
The shell itself exits normally with 139 (128 + 11, POSIX sh): the death is the child's."""

import ctypes
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "child",
    "user_function": "train_step",
    "headline": ["train_step"],
}
CONTROL = {"kind": "clean", "exit": 0}
COMMAND = ["sh", "-c", "'{python}' '{file}' {control}; exit $?"]


def train_step(address):
    print("token", ctypes.string_at(address))


token = ctypes.create_string_buffer(b"hello")
train_step(ctypes.addressof(token) if "--control" in sys.argv else 0)
