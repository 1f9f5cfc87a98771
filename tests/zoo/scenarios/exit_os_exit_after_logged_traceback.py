"""Near-miss: logs a traceback that it got over, says on the other channel why it stops, and leaves by os._exit(1).
Nothing tells of os._exit(): the traceback is the last on its channel, and a line on the other speaks against it."""

import logging
import os
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "supported",
    "exit": 1,
    "signal": None,
    "role": "main",
    "headline": ["ValueError"],
    "against": ["validation failed: 3 rows", "chooses to leave"],
}
CONTROL = {"kind": "clean", "exit": 0}

if "--control" not in sys.argv:
    try:
        int("x")
    except ValueError:
        logging.exception("bad field, skipped")
    print("validation failed: 3 rows", flush=True)
    os._exit(1)
