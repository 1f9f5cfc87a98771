"""Near-miss: quotes three messages that end other programs, each as a line of its own, then calls os.abort() itself.
glibc and the C++ runtime call abort() after theirs; here the interpreter did."""

import os
import sys

EXPECT = {
    "kind": "abort",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "give_up",
    "headline": ["SIGABRT", "give_up"],
}
CONTROL = {"kind": "clean", "exit": 0}

QUOTED = """\
double free or corruption (out)
terminate called after throwing an instance of 'std::runtime_error'
  what():  bank is empty
free(): invalid pointer
"""


def give_up():
    print("yesterday it ended with:", file=sys.stderr)
    sys.stderr.write(QUOTED)
    sys.stderr.flush()
    os.abort()


if "--control" not in sys.argv:
    give_up()
