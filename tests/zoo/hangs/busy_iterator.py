"""A `for` through an iterator of the program's own making, which never ends: what it counts proves nothing.

The control goes through as much of it as a range has. Seen: state R; number rises in all dumps.
"""

import signal
import sys

from stage import say_ready

EXPECT = {
    "kind": "busy-python",
    "moving": False,
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "consume",
    "python_line_text": None,
    "facts": ["number in consume", "not shown to end", "that proves no progress"],
}
CONTROL = {"kind": "progressing", "status": "supported", "rising_local": "number"}
LIMIT_S = 110


class Samples:
    def __iter__(self):
        return self

    def __next__(self):
        return 3


def consume(samples):
    total = 0
    say_ready()
    for number, sample in enumerate(samples):
        total = (total + sample) % 7
        if total == 7:
            raise SystemExit(number)


signal.alarm(LIMIT_S)
consume(range(10**12) if "--control" in sys.argv else Samples())
