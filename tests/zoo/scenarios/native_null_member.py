"""A C function reads the member at offset 0x18 of a struct whose pointer is null.
The fault address is 0x18, not 0: the pointer was null, the offset is the member's."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "count_rows",
    "component": "native_faults",
    "component_function": "zoo_read_row_count",
    "faulting_image": "native_faults",
    "fault": ["null", "0x18"],
    "headline": ["native_faults", "count_rows"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_read_row_count.argtypes = [ctypes.c_void_p]


def count_rows(table):
    print("rows", library.zoo_read_row_count(table))


table = ctypes.create_string_buffer(64)
count_rows(table if "--control" in sys.argv else None)
