"""The process receives SIGILL, sent by itself.
The wait status proves the signal; faulthandler adds "Illegal instruction" and the stack."""

import os
import signal
import sys

EXPECT = {
    "kind": "illegal-instruction",
    "status": "established",
    "exit": 132,
    "signal": "SIGILL",
    "role": "main",
    "user_function": "run_kernel",
    "headline": ["run_kernel"],
}
CONTROL = {"kind": "clean", "exit": 0}


def run_kernel(signo):
    print("running kernel")
    os.kill(os.getpid(), signo)


run_kernel(0 if "--control" in sys.argv else signal.SIGILL)
