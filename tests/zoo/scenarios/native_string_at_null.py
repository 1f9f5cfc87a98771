"""ctypes.string_at(0): the fault is in libc's strlen, the caller is ctypes.
libc is plumbing; the first frame below it that is not belongs to _ctypes, the module that was asked."""

import ctypes
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "read_token",
    "component": "_ctypes",
    "component_function": None,
    "faulting_image": "libc",
    "fault": ["read", "null"],
    "headline": ["_ctypes", "read_token"],
}
CONTROL = {"kind": "clean", "exit": 0}


def read_token(address):
    print("token", ctypes.string_at(address))


token = ctypes.create_string_buffer(b"hello")
read_token(ctypes.addressof(token) if "--control" in sys.argv else 0)
