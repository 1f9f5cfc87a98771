"""A program shows an old log in which the C library complained, goes on, and faults for a reason of its own.
The near miss of memory_fault_after_damage: the words stand in a line of their own, and nobody aborted."""

import ctypes
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "read_name",
    "headline": ["read_name"],
    "not_in_headline": ["damaged"],
}
CONTROL = {"kind": "clean", "exit": 0}


def read_name(address):
    print("name", ctypes.string_at(address))


print("the last run ended like this:", file=sys.stderr)
print("free(): invalid pointer", file=sys.stderr)
print("this one starts now", file=sys.stderr, flush=True)
name = ctypes.create_string_buffer(b"harness")
read_name(ctypes.addressof(name) if "--control" in sys.argv else 0)
