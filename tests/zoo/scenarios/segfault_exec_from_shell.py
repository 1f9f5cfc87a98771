"""A shell script that ends in exec python; Python segfaults.
exec replaces the shell in the same process, so the command itself dies of SIGSEGV."""

import ctypes
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "train_step",
    "headline": ["train_step"],
}
CONTROL = {"kind": "clean", "exit": 0}
COMMAND = ["sh", "-c", "OMP_NUM_THREADS=1; export OMP_NUM_THREADS; exec '{python}' '{file}' {control}"]


def train_step(address):
    print("token", ctypes.string_at(address))


token = ctypes.create_string_buffer(b"hello")
train_step(ctypes.addressof(token) if "--control" in sys.argv else 0)
