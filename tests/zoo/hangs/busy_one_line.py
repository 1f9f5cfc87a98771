"""An endless Python loop of one line.

None of its locals moves. The control goes through a range in one line just like it: its integer only rises. Seen:
state R; four dumps on the same line with the GIL, no integer among the locals; control: count rises in all four.
"""

import signal
import sys

from stage import say_ready

EXPECT = {
    "kind": "busy-python",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "wait_for_flag",
    "python_line_text": "while not done: pass",
    "facts": ["wait_for_flag"],
}
CONTROL = {"kind": "progressing", "status": "supported", "rising_local": "count"}
LIMIT_S = 110


def wait_for_flag():
    done = False
    say_ready()
    while not done: pass  # noqa: E701  # fmt: skip


def count_up(bound):
    say_ready()
    for count in range(bound): pass  # noqa: E701  # fmt: skip


signal.alarm(LIMIT_S)
if "--control" in sys.argv:
    count_up(10**12)
else:
    wait_for_flag()
