"""A POSIX record lock (fcntl F_SETLKW) of a file that a process elsewhere has locked.

The holder sleeps and may let go at any moment, so this is a wait and no fault. In the control the holder lets go
again and again. Seen: state S in fcntl, kernel stack fcntl_setlk; /proc/locks names the holder and, behind "->", this
process.
"""

import fcntl
import os
import signal
import sys
import tempfile
import time

from stage import run_elsewhere, say_ready

EXPECT = {
    "kind": "waiting",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "open_ledger",
    "python_line_text": "fcntl.lockf(lock, fcntl.LOCK_EX)  # reader",
    "facts": ["ledger.db", "whether somebody answers cannot be known from here"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def hold(path, held):
    with open(path, "w") as lock:
        while True:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            os.write(held, b"%d\n" % os.getpid())
            time.sleep(0.02 if "--control" in sys.argv else LIMIT_S)
            fcntl.lockf(lock, fcntl.LOCK_UN)
            time.sleep(0.02)


def open_ledger(lock):
    fcntl.lockf(lock, fcntl.LOCK_EX)  # reader
    print("locked", flush=True)
    fcntl.lockf(lock, fcntl.LOCK_UN)
    time.sleep(0.02)


signal.alarm(LIMIT_S)
path = os.path.join(tempfile.mkdtemp(), "ledger.db")
reader, writer = os.pipe()
run_elsewhere(hold, path, writer)
holder = os.read(reader, 100).decode().strip()
with open(path, "r+") as lock:
    say_ready(facts=[holder])
    while True:
        open_ledger(lock)
