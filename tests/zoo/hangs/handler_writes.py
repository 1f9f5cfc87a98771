"""The main thread waits for a queue that nobody fills; the handler of an interval timer, which runs on it, writes.

In the control it is fed, and writes as well. Seen: py-spy: MainThread in train, in Queue.get.
"""

import os
import queue
import signal
import sys
import threading
import time

from stage import say_ready

EXPECT = {
    "kind": "waiting",
    "moving": False,
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "train",
    "python_line_text": "batch = batches.get()",
    "facts": ["MainThread moves", "in a handler of a signal", "could be woken by a handler of SIGALRM"],
}
CONTROL = {"kind": "progressing", "status": "supported"}
LIMIT_S = 110
END_S = time.monotonic() + LIMIT_S


def beat(*_):
    if time.monotonic() > END_S:
        os._exit(1)
    print("alive", file=log)


def feed(batches):
    while True:
        batches.put(str(time.monotonic()))
        time.sleep(0.15)


def train(batches):
    while True:
        batch = batches.get()
        print("trained on", batch, file=log)


log = open("beats.log", "w", buffering=1)
signal.signal(signal.SIGALRM, beat)
signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
work = queue.Queue()
if "--control" in sys.argv:
    threading.Thread(target=feed, args=(work,), daemon=True).start()
say_ready()
train(work)
