"""Opens more files than RLIMIT_NOFILE allows; the OSError is not caught.
open(2) fails with EMFILE: "[Errno 24] Too many open files"."""

import os
import resource
import sys

EXPECT = {
    "kind": "resource-limit",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "open_shards",
    "headline": ["Too many open files", "64 open files are allowed (ulimit -n)"],
}
CONTROL = {"kind": "clean", "exit": 0}


def open_shards(count):
    shards = []
    for _ in range(count):
        shards.append(open(os.devnull, "rb"))
    print("opened", len(shards))


resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
open_shards(8 if "--control" in sys.argv else 128)
