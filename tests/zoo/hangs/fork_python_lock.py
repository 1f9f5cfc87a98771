"""A child forked while another thread had a lock; the child has no such thread, so the lock is never released there.

The parent is well: its thread has the lock and sleeps, its main thread waits for the child. In the control the lock
was free at the moment of the fork and the child works. Seen: the child has one thread, in a futex wait, py-spy has it
in write_log; the parent's are in wait4 and clock_nanosleep.
"""

import os
import signal
import sys
import threading
import time

from stage import say_ready

EXPECT = {
    "kind": "deadlock-fork",
    "pid_role": "worker",
    "thread": "MainThread",
    "python_function": "write_log",
    "python_line_text": "with log_lock:  # child",
    "facts": ["log_lock"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110

log_lock = threading.Lock()
taken = threading.Event()


def rotate_log():
    with log_lock:
        taken.set()
        time.sleep(LIMIT_S)


def rotate_later():
    taken.set()
    time.sleep(LIMIT_S)


def write_log(line):
    with log_lock:  # child
        print(line, flush=True)


def run_child():
    signal.alarm(LIMIT_S)  # fork clears alarms
    say_ready(pid=os.getpid())
    while True:
        write_log("child works")
        time.sleep(0.05)


signal.alarm(LIMIT_S)
target = rotate_later if "--control" in sys.argv else rotate_log
threading.Thread(target=target, name="rotator", daemon=True).start()
taken.wait()
child = os.fork()
if child == 0:
    run_child()
os.waitpid(child, 0)
