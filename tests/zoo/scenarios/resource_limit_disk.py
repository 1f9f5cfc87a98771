"""Writes a checkpoint to a device that is always full; the OSError is not caught.
write(2) to /dev/full fails with ENOSPC: "[Errno 28] No space left on device"."""

import os
import sys

EXPECT = {
    "kind": "resource-limit",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "save_checkpoint",
    "headline": ["No space left on device"],
}
CONTROL = {"kind": "clean", "exit": 0}


def save_checkpoint(path):
    with open(path, "wb", 0) as checkpoint:
        checkpoint.write(bytes(4096))
    print("saved")


save_checkpoint(os.devnull if "--control" in sys.argv else "/dev/full")
