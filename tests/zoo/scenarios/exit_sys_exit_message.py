"""The program gives up with sys.exit("message").
SystemExit with a str prints it on stderr and exits with 1: a decision, not an uncaught exception."""

import sys

EXPECT = {
    "kind": "exit-nonzero",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": ["1"],
}
CONTROL = {"kind": "clean", "exit": 0}


def read_config(present):
    if not present:
        sys.exit("config.toml: no section [train]")
    print("config read")


read_config(present="--control" in sys.argv)
