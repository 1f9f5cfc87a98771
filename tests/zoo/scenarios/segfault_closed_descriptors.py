"""Closes every descriptor, stderr too, then segfaults.
faulthandler writes into a closed descriptor, so no frame is seen; the wait status still says SIGSEGV."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "run_as_daemon",
    "headline": [],
}
CONTROL = {"kind": "clean", "exit": 0}


def run_as_daemon(address):
    os.closerange(0, 256)
    ctypes.string_at(address)


print("going silent", flush=True)
token = ctypes.create_string_buffer(b"hello")
run_as_daemon(ctypes.addressof(token) if "--control" in sys.argv else 0)
