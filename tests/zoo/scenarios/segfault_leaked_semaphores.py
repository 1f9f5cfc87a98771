"""A segfault after creating semaphores; the resource tracker then warns of leaked semaphore objects.
The tracker is another process that outlives the hard death and sees its pipe close: noise, not cause."""

import ctypes
import multiprocessing
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "train_step",
    "headline": ["train_step"],
}
CONTROL = {"kind": "clean", "exit": 0}


def train_step(address):
    print("token", ctypes.string_at(address))


if __name__ == "__main__":
    # Only named semaphores (spawn) are registered with the tracker; with fork they are unlinked at once.
    context = multiprocessing.get_context("spawn")
    locks = [context.Semaphore() for _ in range(4)]
    token = ctypes.create_string_buffer(b"hello")
    train_step(ctypes.addressof(token) if "--control" in sys.argv else 0)
