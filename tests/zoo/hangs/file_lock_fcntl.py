"""A POSIX record lock (fcntl F_SETLKW) of a file that a process elsewhere has locked.

In the control the holder lets go again and again. Seen: state S in fcntl, kernel stack fcntl_setlk; /proc/locks names
the holder and, behind "->", this process.
"""

import fcntl
import json
import os
import signal
import sys
import tempfile
import time

EXPECT = {
    "kind": "blocked-io",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "open_ledger",
    "python_line_text": "fcntl.lockf(lock, fcntl.LOCK_EX)  # reader",
    "facts": ["ledger.db"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def say_ready(**truth):
    path = os.environ["ZOO_READY"]
    with open(path + ".part", "w") as file:
        json.dump(truth, file)
    os.replace(path + ".part", path)


def run_elsewhere(function, *arguments):
    """In a process that is nobody's child any more, but in our group, so that it ends with us."""
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    if os.fork() == 0:
        signal.alarm(LIMIT_S)  # fork clears alarms
        function(*arguments)
    os._exit(0)


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
