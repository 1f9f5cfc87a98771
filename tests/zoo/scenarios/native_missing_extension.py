"""A library was compiled for another processor: it runs an instruction of an extension that this one does not show.
Which extension is missing depends on the machine; the kernel raises SIGILL for any of them."""

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
    "component": "native_extensions",
    "component_function": "zoo_",
    "faulting_image": "native_extensions",
    "headline": ["native_extensions", "run_kernel", " instruction (", "this CPU", " has no "],
    "fault": [" instruction (", "this CPU", " has no "],
    "remedy": ["Use a build of native_extensions.so", "/proc/cpuinfo shows "],
}
CONTROL = {"kind": "clean", "exit": 0}
MACHINES = ["x86_64"]
BUILD = "native_extensions.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
KERNELS = {"avx512f": "zoo_add_512", "amx_tile": "zoo_release_tiles", "xop": "zoo_choose"}


def list_missing():
    with open("/proc/cpuinfo") as text:
        flags = next(line for line in text if line.startswith("flags")).split()
    return [kernel for flag, kernel in KERNELS.items() if flag not in flags]


def run_kernel(name):
    print("running", name, flush=True)
    print("ran", getattr(library, name)())


run_kernel("zoo_add" if "--control" in sys.argv else list_missing()[0])
