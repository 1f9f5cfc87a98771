"""A search by halves that keeps both bounds: for what lies between two neighbours it turns for ever.

lo, hi and mid are the same each time: who sees that need not look any longer. The control searches right, one key after
the other. Seen: state R; the three integers are equal in all dumps, the line is not; control: number rises.
"""

import signal
import sys

from stage import say_ready

EXPECT = {
    "kind": "busy-python",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "find",
    "python_line_text": None,
    "facts": ["hi, lo, mid in find", "samples while the loop ran: it most likely never ends"],
}
CONTROL = {"kind": "progressing", "status": "supported", "rising_local": "number"}
LIMIT_S = 110


def find(rows, key):
    lo = 0
    hi = len(rows) - 1
    say_ready()
    while lo < hi:
        mid = (lo + hi) // 2
        below = rows[mid] < key
        if below:
            lo = mid
        else:
            hi = mid
    return lo


def find_each(rows, count):
    say_ready()
    for number in range(count):
        lo, hi = 0, len(rows)
        while lo < hi:
            mid = (lo + hi) // 2
            if rows[mid] < number:
                lo = mid + 1
            else:
                hi = mid


signal.alarm(LIMIT_S)
if "--control" in sys.argv:
    find_each(range(0, 2_000_000, 2), 10**10)
else:
    find([*range(0, 2_000_000, 2)], 777_777)
