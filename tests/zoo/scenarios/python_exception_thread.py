"""A thread dies of a KeyError; the main thread notices and leaves with sys.exit(1).
threading.excepthook prints the traceback but ends only the thread; sys.exit(1) adds no text of its own.
That the thread is the reason for the 1 is inferred, not proven, so the status is "supported"."""

import sys
import threading

EXPECT = {
    "kind": "python-exception",
    "status": "supported",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "refill_memory_bank",
    "headline": ["KeyError"],
}
CONTROL = {"kind": "clean", "exit": 0}

filled = threading.Event()


def refill_memory_bank(shards):
    print("refilled", shards["train"])
    filled.set()


shards = {"train": 3} if "--control" in sys.argv else {}
filler = threading.Thread(target=refill_memory_bank, args=(shards,))
filler.start()
filler.join()
if not filled.is_set():
    sys.exit(1)
