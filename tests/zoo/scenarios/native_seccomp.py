"""A C function makes a system call that a seccomp filter forbids.
SECCOMP_RET_TRAP: SIGSYS, SYS_SECCOMP, with the call's number; the program counter is behind libc's syscall."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "bad-syscall",
    "status": "established",
    "exit": 159,
    "signal": "SIGSYS",
    "role": "main",
    "user_function": "read_priority",
    "component": "native_faults",
    "component_function": "zoo_read_priority",
    "faulting_image": "libc",
    "headline": ["native_faults", "read_priority"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])


def read_priority(forbidden):
    print("allowed", library.zoo_read_priority(forbidden) >= 0)


read_priority(0 if "--control" in sys.argv else 1)
