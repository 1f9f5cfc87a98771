"""Near-miss: an exception is caught and logged with its traceback, then the program leaves with sys.exit(3).
An uncaught exception exits with 1; a 3 can only be the program's own choice, whatever stderr quotes."""

import logging
import sys

EXPECT = {
    "kind": "exit-nonzero",
    "status": "established",
    "exit": 3,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": ["3"],
}
CONTROL = {"kind": "clean", "exit": 0}


def load_batch(rows):
    return rows[16]


def train_epoch(rows):
    try:
        load_batch(rows)
    except IndexError:
        logging.exception("batch 16 is missing")
        sys.exit(3)


train_epoch(range(32 if "--control" in sys.argv else 8))
