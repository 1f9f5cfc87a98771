"""faulthandler is turned off, then on again late, into a file; a child faults and the file is shown.
faulthandler writes the Python stack of the faulting thread and lets the signal kill the process."""

import ctypes
import faulthandler
import os
import sys
import tempfile

BARE = {"exit": 139}


def step():
    ctypes.string_at(0)


def fault_in_child(file):
    pid = os.fork()
    if pid == 0:
        faulthandler.enable(file)
        step()
    return os.WTERMSIG(os.waitpid(pid, 0)[1])


faulthandler.disable()
with tempfile.TemporaryFile("w+") as file:
    print("child ended with signal", fault_in_child(file))
    file.seek(0)
    for line in file:
        if not line.startswith("Current thread") and "extension modules" not in line:
            print(line.rstrip())
sys.stdout.flush()
faulthandler.enable()
step()
