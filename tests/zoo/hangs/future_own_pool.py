"""A task waits for another one that it has given to its own pool, which has one worker: itself.

The main thread does something else. In the control the pool has two workers. Seen: the worker in a futex wait without a
timeout, py-spy has it in prepare below Future.result; the main thread in clock_nanosleep.
"""

import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from stage import say_ready

EXPECT = {
    "kind": "deadlock-lock",
    "pid_role": "main",
    "thread": "steps_0",
    "python_function": "prepare",
    "python_line_text": "return pool.submit(load).result()",
    "facts": ["steps", "no worker is left"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110

pool = ThreadPoolExecutor(2 if "--control" in sys.argv else 1, thread_name_prefix="steps")


def load():
    return "rows"


def prepare():
    return pool.submit(load).result()


def supervise(task):
    while not task.done():
        time.sleep(0.05)


signal.alarm(LIMIT_S)
say_ready()
while True:
    supervise(pool.submit(prepare))
    print("prepared", flush=True)
    time.sleep(0.05)
