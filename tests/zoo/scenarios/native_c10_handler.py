"""A C function reads through a null pointer while c10's own handler of fatal signals is installed.
c10 prints the stack of every thread and then lets the signal kill the process: it reports, it does not recover."""

import ctypes
import os
import sys
import threading

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "train_step",
    "component": "native_faults",
    "component_function": "zoo_read",
    "faulting_image": "native_faults",
    "fault": ["read", "null"],
    "headline": ["native_faults", "train_step"],
}
SHIM = {
    "because": "c10 comes before us, and what reaches us is the signal that it raises again when it has printed",
    "component": ...,
    "component_function": ...,
    "faulting_image": ...,
    "fault": ...,
    "headline": ["train_step"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"
NEEDS = ["torch"]

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_read.argtypes = [ctypes.c_void_p]


def train_step(token):
    print("token", library.zoo_read(token))


def train(token):
    import torch

    torch._C._set_print_stack_traces_on_fatal_signal(True)
    loader = threading.Thread(target=threading.Event().wait, daemon=True)  # c10 asks it for its stack, and waits
    loader.start()
    train_step(token)


if __name__ == "__main__":
    token = ctypes.c_long(6)
    train(ctypes.byref(token) if "--control" in sys.argv else None)
