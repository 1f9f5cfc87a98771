"""Near-miss: logs the traceback of a ValueError that it caught, then raises one that only calls itself ValueError.
Both have that __name__; what ended it is the one that was not caught, whose qualified name is another."""

import sys
import traceback

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "train",
    "headline": ["ShapeError: 3 columns", "train"],
    "not_in_headline": ["no header"],
}
CONTROL = {"kind": "clean", "exit": 0}


class ShapeError(ValueError):
    pass


ShapeError.__name__ = "ValueError"


def read_header():
    raise ValueError("no header")


def train(columns):
    if columns != 4:
        raise ShapeError(f"{columns} columns")
    print("trained")


if "--control" not in sys.argv:
    try:
        read_header()
    except ValueError:
        traceback.print_exc()
train(4 if "--control" in sys.argv else 3)
