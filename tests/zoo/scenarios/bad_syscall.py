"""The process receives SIGSYS, sent by itself.
The wait status proves the signal; faulthandler does not handle this one, so no Python frame is seen."""

import os
import signal
import sys

EXPECT = {
    "kind": "bad-syscall",
    "status": "established",
    "exit": 159,
    "signal": "SIGSYS",
    "role": "main",
    "user_function": "open_device",
    "headline": ["SIGSYS"],
}
CONTROL = {"kind": "clean", "exit": 0}


def open_device(signo):
    print("opening device")
    os.kill(os.getpid(), signo)


open_device(0 if "--control" in sys.argv else signal.SIGSYS)
