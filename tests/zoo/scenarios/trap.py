"""The process receives SIGTRAP, sent by itself.
The wait status proves the signal; faulthandler does not handle this one, so no Python frame is seen."""

import os
import signal
import sys

EXPECT = {
    "kind": "trap",
    "status": "established",
    "exit": 133,
    "signal": "SIGTRAP",
    "role": "main",
    "user_function": "hit_breakpoint",
    "headline": ["SIGTRAP"],
}
CONTROL = {"kind": "clean", "exit": 0}


def hit_breakpoint(signo):
    print("unreachable code")
    os.kill(os.getpid(), signo)


hit_breakpoint(0 if "--control" in sys.argv else signal.SIGTRAP)
