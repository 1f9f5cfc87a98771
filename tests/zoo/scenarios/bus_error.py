"""The process receives SIGBUS, sent by itself.
The wait status proves the signal; faulthandler adds "Bus error" and the stack of the thread it reached."""

import os
import signal
import sys

EXPECT = {
    "kind": "bus-error",
    "status": "established",
    "exit": 135,
    "signal": "SIGBUS",
    "role": "main",
    "user_function": "read_mapped_shard",
    "headline": ["read_mapped_shard", "sent to itself"],
}
CONTROL = {"kind": "clean", "exit": 0}


def read_mapped_shard(signo):
    print("reading shard")
    os.kill(os.getpid(), signo)


read_mapped_shard(0 if "--control" in sys.argv else signal.SIGBUS)
