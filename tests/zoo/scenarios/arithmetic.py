"""The process receives SIGFPE, sent by itself.
The wait status proves the signal; faulthandler adds "Floating point exception" ("Floating-point" in 3.13)."""

import os
import signal
import sys

EXPECT = {
    "kind": "arithmetic",
    "status": "established",
    "exit": 136,
    "signal": "SIGFPE",
    "role": "main",
    "user_function": "normalise_batch",
    "headline": ["normalise_batch"],
}
CONTROL = {"kind": "clean", "exit": 0}


def normalise_batch(signo):
    print("normalising")
    os.kill(os.getpid(), signo)


normalise_batch(0 if "--control" in sys.argv else signal.SIGFPE)
