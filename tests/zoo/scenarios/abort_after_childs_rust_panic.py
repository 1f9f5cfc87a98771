"""Near-miss: a probe written in Rust panics in a child, which is handled; later a C library of the job calls abort().
The kind is proven by the signal and the stack; the panic is somebody else's, and no part of the reason."""

import ctypes
import os
import subprocess
import sys

EXPECT = {
    "kind": "abort",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "train_step",
    "component": "native_faults",
    "headline": ["native_faults", "train_step"],
    "not_in_headline": ["panicked"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"
PROBE = "printf \"thread 'main' panicked at src/probe.rs:3:5:\\nno device\\n\" >&2; exit 101"

library = ctypes.CDLL(os.environ["ZOO_LIB"])


def train_step(healthy):
    library.zoo_abort_unless(healthy)
    print("stepped")


if "--control" not in sys.argv:
    subprocess.run(["sh", "-c", PROBE], check=False)
train_step(1 if "--control" in sys.argv else 0)
