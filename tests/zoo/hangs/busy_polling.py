"""A loop that asks an empty queue again and again, and counts how often.

Nobody will ever put anything into it: the counter of a `while` only rises, and proves nothing. The control goes through
so many tries that end, in a `for`. Seen: state R; n and tries rise in all dumps.
"""

import queue
import signal
import sys

from stage import say_ready

EXPECT = {
    "kind": "busy-python",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "poll",
    "python_line_text": None,
    "facts": ["n in poll", "in a `while` loop", "that proves no progress"],
}
CONTROL = {"kind": "progressing", "status": "supported", "rising_local": "tries"}
LIMIT_S = 110


def poll(jobs):
    n = 0
    say_ready()
    while True:
        try:
            return jobs.get_nowait()
        except queue.Empty:
            n += 1


def poll_for_a_while(jobs, most):
    say_ready()
    for tries in range(most):
        try:
            return jobs.get_nowait()
        except queue.Empty:
            continue
    raise SystemExit(f"no job in {tries} tries")


signal.alarm(LIMIT_S)
if "--control" in sys.argv:
    poll_for_a_while(queue.SimpleQueue(), 10**12)
else:
    poll(queue.SimpleQueue())
