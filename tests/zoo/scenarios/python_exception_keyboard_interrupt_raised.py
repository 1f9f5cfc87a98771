"""Near-miss of interrupted_sigint: the program raises KeyboardInterrupt itself, and nobody has sent a SIGINT.
CPython ends itself with SIGINT all the same (exit_sigint, Modules/main.c)."""

import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 130,
    "signal": "SIGINT",
    "role": "main",
    "user_function": "stop_early",
    "headline": ["KeyboardInterrupt: the loss is flat", "stop_early"],
    "not_in_headline": ["Ctrl-C"],
}
CONTROL = {"kind": "clean", "exit": 0}


def stop_early(losses):
    if len(set(losses)) == 1:
        raise KeyboardInterrupt("the loss is flat")
    print("trained")


stop_early([3, 2, 1] if "--control" in sys.argv else [3, 3, 3])
