"""A parent starts a worker again and again, and each one ends with a traceback soon after it was born.

In between the parent rests, and says so. In the control the workers end well. Seen: the parent in wait4, or asleep; a
log that only has tracebacks in it.
"""

import multiprocessing
import signal
import sys
import time

from stage import say_ready

EXPECT = {
    "kind": "waiting",
    "weaker": ["busy-python", "busy-native"],
    "moving": False,
    "pid_role": "main",
    "python_function": None,
    "facts": ["failed"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def work(well):
    time.sleep(1.2)
    if not well:
        raise ValueError("no such shard")


def serve(well, fork):
    while True:
        worker = fork.Process(target=work, args=(well,))
        worker.start()
        worker.join()
        if worker.exitcode:
            print("worker ended, starting another one", flush=True)
            time.sleep(0.4)


signal.alarm(LIMIT_S)
say_ready()
serve("--control" in sys.argv, multiprocessing.get_context("fork"))
