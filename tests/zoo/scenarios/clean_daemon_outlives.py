"""Ends with 0 at once while a double-forked daemon lives on for half a second with stdout open.
The command's own wait status is 0; end of file on its stdout comes later and says nothing about it."""

import os
import sys
import time

EXPECT = {
    "kind": "clean",
    "status": "established",
    "exit": 0,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": [],
}
CONTROL = {"kind": "clean", "exit": 0}


def start_daemon():
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    time.sleep(0.5)
    os.write(1, b"daemon: done\n")
    os._exit(0)


if "--control" not in sys.argv:
    start_daemon()
print("training finished")
