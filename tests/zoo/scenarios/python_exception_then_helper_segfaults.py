"""Near-miss: an uncaught ValueError ends the command; a helper that it stops at exit segfaults while it is stopped.
The helper fell after the exception, so it cannot have caused it."""

import atexit
import ctypes
import os
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "train_step",
    "headline": ["ValueError"],
    "against": ["SIGSEGV"],
}
CONTROL = {"kind": "clean", "exit": 0}


def start_helper():
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.read(reader, 1)
        ctypes.string_at(0)
    os.close(reader)
    return pid, writer


def stop_helper(pid, writer):
    os.close(writer)
    os.waitpid(pid, 0)


def train_step(batch_size):
    if batch_size == 0:
        raise ValueError("expected a batch of 16, got 0")


if "--control" not in sys.argv:
    atexit.register(stop_helper, *start_helper())
train_step(16 if "--control" in sys.argv else 0)
