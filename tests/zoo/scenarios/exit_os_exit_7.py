"""The program leaves with os._exit(7): no cleanup, no text.
_exit(2) hands its argument straight to the kernel; the wait status is all there is."""

import os
import sys

EXPECT = {
    "kind": "exit-nonzero",
    "status": "established",
    "exit": 7,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": ["7"],
}
CONTROL = {"kind": "clean", "exit": 0}


def leave_without_cleanup(status):
    print("leaving", flush=True)
    os._exit(status)


leave_without_cleanup(0 if "--control" in sys.argv else 7)
