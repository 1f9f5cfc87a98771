"""Native code reads address 0 on the main thread.
strlen(NULL) inside ctypes: the kernel delivers SIGSEGV, which is the wait status."""

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


def train_step(address):
    print("token", ctypes.string_at(address))


token = ctypes.create_string_buffer(b"hello")
train_step(ctypes.addressof(token) if "--control" in sys.argv else 0)
