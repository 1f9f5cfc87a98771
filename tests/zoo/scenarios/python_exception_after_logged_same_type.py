"""Near-miss: logs the traceback of a ValueError that it caught; one that nothing catches goes to its own excepthook.
The hook prints in its own form, so all that is known is the type: the logged message and its line are the other's."""

import logging
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": ["ValueError"],
    "not_in_headline": ["version", "load_cache"],
}
CONTROL = {"kind": "clean", "exit": 0}


def load_cache():
    raise ValueError("the cache is of version 1")


def train(loss):
    if loss != loss:
        raise ValueError("the loss is nan at step 9")
    print("trained")


if "--control" not in sys.argv:
    sys.excepthook = lambda kind, value, traceback: print("reported to the tracker", file=sys.stderr)
    try:
        load_cache()
    except ValueError:
        logging.exception("no cache; computed again")
train(0.7 if "--control" in sys.argv else float("nan"))
