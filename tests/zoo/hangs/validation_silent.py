"""A validation that never comes to its end, for it does not go on to the next rows; nothing is printed meanwhile.

Slow or endless: it computes, and is not called stuck. The control goes through all rows once and prints at the end, for
minutes nothing of it is seen outside either, but the number of its rows rises. Seen: both in state R in score, no bytes
written.
"""

import signal
import sys

from stage import say_ready

EXPECT = {
    "kind": "busy-python",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "score",
    "python_line_text": None,
    "facts": [],
}
CONTROL = {"kind": "progressing", "status": "supported", "rising_local": "number"}
LIMIT_S = 110
ROWS = [[0.5] * 200_000] * 100_000


def score(rows):
    for value in rows:
        best = value * value
    return best


def validate_all():
    total = 0.0
    for number, rows in enumerate(ROWS):
        total = max(total, score(rows) - number)
    return total


def validate_first():
    total = 0.0
    while total >= 0.0:
        total += score(ROWS[0])
    return total


signal.alarm(LIMIT_S)
say_ready()
print(validate_all() if "--control" in sys.argv else validate_first())
