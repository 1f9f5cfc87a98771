"""A multiprocessing.Queue that two children could fill: the worker sleeps in its task, the other one only logs.

In the control the worker fills it. Seen: py-spy: MainThread in collect, in Queue.get; the worker in work.
"""

import multiprocessing
import signal
import sys
import time

from stage import say_ready

EXPECT = {
    "kind": "blocked-child",
    "status": "hypothesis",
    "moving": False,
    "pid_role": "worker",
    "thread": "MainThread",
    "python_function": "work",
    "python_line_text": "time.sleep(LIMIT_S)",
    "facts": ["slow or stuck"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def work(results):
    signal.alarm(LIMIT_S)
    while "--control" in sys.argv:
        results.put("part")
        time.sleep(0.1)
    time.sleep(LIMIT_S)


def log(_):
    signal.alarm(LIMIT_S)
    with open("beats.log", "w", buffering=1) as file:
        while True:
            print("alive", file=file)
            time.sleep(0.2)


def collect(results):
    with open("parts.log", "w", buffering=1) as file:
        while True:
            print(results.get(), file=file)


if __name__ == "__main__":
    signal.alarm(LIMIT_S)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    worker, beside = (context.Process(target=target, args=(queue,)) for target in (work, log))
    worker.start()
    beside.start()
    time.sleep(0.5)
    say_ready(pid=worker.pid)
    collect(queue)
