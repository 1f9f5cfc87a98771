"""Pool.map() after a worker was killed in its task: the pool starts a new worker, the task is lost (bpo-22393).

The main thread waits for the result for ever, both workers wait for tasks, one younger than the other. In the control
no worker dies. Seen: main thread in a futex wait, py-spy has it in resize_all; the workers in read and in a futex
wait, both in get().
"""

import multiprocessing
import os
import signal
import sys
import time

from stage import say_ready

EXPECT = {
    "kind": "blocked-child",
    "weaker": ["waiting"],
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "resize_all",
    "python_line_text": "pool.map(resize, range(1000), chunksize=1)",
    "facts": ["Pool"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def start_worker():
    signal.alarm(LIMIT_S)  # fork clears alarms
    number = multiprocessing.current_process()._identity[0]
    if number == (2 if "--control" in sys.argv else 3):  # of two
        say_ready()


def resize(number):
    if "--control" in sys.argv:
        time.sleep(0.2)
        print("resized", number, flush=True)
    elif number == 5:
        os.kill(os.getpid(), signal.SIGKILL)


def resize_all():
    with multiprocessing.get_context("fork").Pool(2, start_worker) as pool:
        pool.map(resize, range(1000), chunksize=1)


if __name__ == "__main__":
    signal.alarm(LIMIT_S)
    resize_all()
