"""A thread that C has started reads address 0 while the main thread waits for it in C.
pthread_create, not Python, made the thread: it has no Python frame; the main thread is in pthread_join."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": None,
    "context_function": "wait_for_worker",
    "component": "native_faults",
    "component_function": "zoo_read",
    "faulting_image": "native_faults",
    "fault": ["read", "null"],
    "headline": ["native_faults", "wait_for_worker"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_read_in_native_thread.argtypes = [ctypes.c_void_p]


def wait_for_worker(token):
    if library.zoo_read_in_native_thread(token) != 0:
        sys.exit("no thread")
    print("joined")


token = ctypes.c_long(6)
wait_for_worker(ctypes.byref(token) if "--control" in sys.argv else None)
