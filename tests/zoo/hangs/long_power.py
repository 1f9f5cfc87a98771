"""A power of integers that takes minutes: one call of the interpreter's own arithmetic, with the GIL held.

No signal handler and no other thread runs until it ends. The control multiplies as well, many times and for a short
time each. Seen: state R, one Python line; gdb has x_mul and k_mul below long_pow in the interpreter's own image.
"""

import signal
import sys

from stage import say_ready

EXPECT = {
    "kind": "busy-native",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "count_keys",
    "python_line_text": "return letters**length",
    "facts": ["integer arithmetic (long_pow)", "count_keys"],
}
STRIPPED = {"kind": "busy-python", "facts": []}  # the interpreter's own functions have no names there
CONTROL = {"kind": "progressing", "status": "supported", "rising_local": "number"}
LIMIT_S = 110


def count_keys(letters, length):
    return letters**length


def count_many(letters, count):
    say_ready()
    for number in range(count):
        if letters**64 == number:
            raise SystemExit("no power is that small")


signal.alarm(LIMIT_S)
if "--control" in sys.argv:
    count_many(3, 10**10)
else:
    say_ready()
    count_keys(3, 300_000_000)
