"""Near-miss: a probe aborts and is got over; later input() finds no more input, and its EOFError ends the command.
An EOFError may tell of a peer that is gone; that of input() is about standard input."""

import os
import subprocess
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "ask_name",
    "headline": ["EOFError"],
    "against": ["SIGABRT"],
}
CONTROL = {"kind": "clean", "exit": 0}


def ask_name():
    sys.stdin = open(os.devnull)
    return input("name? ")


if "--control" not in sys.argv:
    subprocess.run([sys.executable, "-c", "import os; os.abort()"])
    ask_name()
