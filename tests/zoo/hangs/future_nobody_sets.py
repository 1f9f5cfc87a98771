"""A worker of a pool waits for a future that is no task's, and the only one who could set it waits for the worker.

In the control the main thread sets it, a while after the look: a wait, and no fault. Seen: both threads in a futex wait
without a timeout; in the control the main thread is in clock_nanosleep.
"""

import signal
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor

from stage import say_ready

EXPECT = {
    "kind": "deadlock-lock",
    "status": "established",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "main",
    "python_line_text": "task.result()  # first",
    "facts": ["nobody is left"],
}
CONTROL = {"kind": "waiting"}
LIMIT_S = 110
LATE_S = 60


def use(answer):
    return answer.result()


def main():
    answer = Future()
    task = ThreadPoolExecutor(1, thread_name_prefix="steps").submit(use, answer)
    say_ready()
    if "--control" in sys.argv:
        time.sleep(LATE_S)
        answer.set_result("rows")
    task.result()  # first
    answer.set_result("rows")


signal.alarm(LIMIT_S)
main()
