"""A C function runs an instruction that is undefined on every processor.
ud2 (x86_64) and udf (aarch64) are defined to be undefined: SIGILL at that instruction."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "illegal-instruction",
    "status": "established",
    "exit": 132,
    "signal": "SIGILL",
    "role": "main",
    "user_function": "run_kernel",
    "component": "native_faults",
    "component_function": "zoo_undefined_instruction",
    "faulting_image": "native_faults",
    "headline": ["native_faults", "run_kernel", "made to trap on every processor"],
    "fault": ["made to trap on every processor"],
    "remedy": ["Report it to"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])


def run_kernel(reached):
    library.zoo_undefined_instruction(reached)
    print("ran")


run_kernel(0 if "--control" in sys.argv else 1)
