"""The main thread waits for a queue that nobody fills; two threads write lines meanwhile, one into stdout's buffer.

In the control the main thread writes the lines. Seen: py-spy: MainThread in train, in Queue.get.
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
    "facts": ["stats", "beside the line of work"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def write(path):
    with open(path, "w", buffering=1) as log:
        lines = 0
        while True:
            lines += 1
            print("alive", lines, file=log)
            time.sleep(0.2)


def chat():
    while True:
        print("still here")
        time.sleep(0.2)


def train(batches):
    return batches.get()


signal.alarm(LIMIT_S)
if "--control" in sys.argv:
    say_ready()
    write("train.log")
for name, target, args in (("stats", write, ("stats.log",)), ("chat", chat, ())):
    threading.Thread(target=target, args=args, name=name, daemon=True).start()
say_ready()
train(queue.Queue())
