"""A program quotes the words of a Rust panic, and later aborts for a reason of its own.
What it quotes is somebody else's: the kind is that of its signal, and the quoted words are no part of the headline."""

import os
import sys

EXPECT = {
    "kind": "abort",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "give_up",
    "headline": ["give_up"],
    "not_in_headline": ["panicked"],
}
CONTROL = {"kind": "clean", "exit": 0}


def give_up():
    os.abort()


print("the other job said: thread 'main' panicked at src/main.rs:10:5:\nindex out of bounds", flush=True)
if "--control" not in sys.argv:
    give_up()
