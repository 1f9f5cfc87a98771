"""The main thread waits for a queue that nobody fills; timers write meanwhile, each a thread that ends after its line.

In the control the main thread joins the threads that write. Seen: py-spy: MainThread in train, in Queue.get.
"""

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
    "python_line_text": "return batches.get()",
    "facts": ["threads that have ended", "beside the line of work"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def beat(log):
    print("alive", file=log)
    following = threading.Timer(0.2, beat, (log,))
    following.daemon = True
    following.start()


def upload(log):
    for part in range(4):
        print("part", part, file=log)
        time.sleep(0.1)


def train(batches):
    return batches.get()


signal.alarm(LIMIT_S)
log = open("beats.log", "w", buffering=1)
say_ready()
while "--control" in sys.argv:
    uploader = threading.Thread(target=upload, args=(log,))
    uploader.start()
    uploader.join()
beat(log)
train(queue.Queue())
