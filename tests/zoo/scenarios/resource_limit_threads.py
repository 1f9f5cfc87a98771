"""Starts threads with stacks of 256 MiB under an address-space limit of 2 GiB, until one is refused.
pthread_create fails with EAGAIN when mmap has no room for the stack; Python raises RuntimeError."""

import resource
import sys
import threading

EXPECT = {
    "kind": "resource-limit",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "start_readers",
    "headline": ["can't start new thread", "address space of 2.00 GiB (ulimit -s, -v)"],
}
CONTROL = {"kind": "clean", "exit": 0}


def start_readers(count):
    enough = threading.Event()
    readers = [threading.Thread(target=enough.wait, daemon=True) for _ in range(count)]
    for reader in readers:
        reader.start()
    enough.set()
    for reader in readers:
        reader.join()
    print("read with", count)


threading.stack_size(256 << 20)
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
start_readers(2 if "--control" in sys.argv else 16)
