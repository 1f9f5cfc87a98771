"""flock() of a file whose holder, a process elsewhere, is stopped by SIGSTOP: it cannot let go until it is let go on.

In the control the holder sleeps for a while, to let go of it after the look: a wait, and no fault. Seen: state S in
flock; /proc/locks names the holder, whose state is T, in the control S.
"""

import fcntl
import os
import signal
import sys
import tempfile
import time

from stage import run_elsewhere, say_ready

EXPECT = {
    "kind": "blocked-io",
    "status": "established",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "open_index",
    "python_line_text": "fcntl.flock(lock, fcntl.LOCK_EX)  # reader",
    "facts": ["index.lock", "is stopped by a signal"],
}
CONTROL = {"kind": "waiting"}
LIMIT_S = 110
LATE_S = 60


def hold(path, held):
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(held, b"%d\n" % os.getpid())
        if "--control" in sys.argv:
            time.sleep(LATE_S)
        else:
            os.kill(os.getpid(), signal.SIGSTOP)


def wait_until_stopped(pid):
    while True:
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] == "T":
                return
        time.sleep(0.01)


def open_index(lock):
    fcntl.flock(lock, fcntl.LOCK_EX)  # reader


signal.alarm(LIMIT_S)
path = os.path.join(tempfile.mkdtemp(), "index.lock")
reader, writer = os.pipe()
run_elsewhere(hold, path, writer)
holder = os.read(reader, 100).decode().strip()
if "--control" not in sys.argv:
    wait_until_stopped(int(holder))
with open(path, "r+") as lock:
    say_ready(facts=[holder])
    open_index(lock)
