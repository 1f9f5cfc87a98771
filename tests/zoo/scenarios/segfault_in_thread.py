"""Native code reads address 0 on a Python thread while the main thread waits for it.
SIGSEGV ends the whole process; faulthandler calls the faulting thread "Current thread"."""

import ctypes
import sys
import threading

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "mine_hard_negatives",
    "headline": ["mine_hard_negatives"],
}
CONTROL = {"kind": "clean", "exit": 0}


def mine_hard_negatives(address):
    print("token", ctypes.string_at(address))


def train_epoch(address):
    miner = threading.Thread(target=mine_hard_negatives, args=(address,))
    miner.start()
    miner.join()


token = ctypes.create_string_buffer(b"hello")
train_epoch(ctypes.addressof(token) if "--control" in sys.argv else 0)
