"""The main thread waits for a queue that nobody fills; timers print meanwhile, which only fills stdout's buffer.

In the control the main thread joins the threads that print. Seen: py-spy: MainThread in train, in Queue.get.
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
    "facts": ["moves (unflushed stdout +", "beside the line of work"],
}
CONTROL = {"kind": "progressing", "status": "supported"}
LIMIT_S = 110


def beat():
    print("alive")
    following = threading.Timer(0.2, beat)
    following.daemon = True
    following.start()


def upload():
    for part in range(4):
        print(part)
        time.sleep(0.1)


def train(batches):
    return batches.get()


signal.alarm(LIMIT_S)
say_ready()
while "--control" in sys.argv:
    uploader = threading.Thread(target=upload)
    uploader.start()
    uploader.join()
beat()
train(queue.Queue())
