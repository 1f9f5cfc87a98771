"""The program sends SIGKILL to itself.
The wait status proves the signal; nothing in kernel or cgroup speaks of memory, so it is not OOM."""

import os
import signal
import sys

EXPECT = {
    "kind": "killed",
    "status": "established",
    "exit": 137,
    "signal": "SIGKILL",
    "role": "main",
    "user_function": None,
    "headline": ["SIGKILL"],
}
CONTROL = {"kind": "clean", "exit": 0}


def give_up_hard(signo):
    print("giving up")
    os.kill(os.getpid(), signo)


give_up_hard(0 if "--control" in sys.argv else signal.SIGKILL)
