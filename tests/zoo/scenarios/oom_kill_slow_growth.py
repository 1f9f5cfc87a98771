"""Fills a control group that is limited to 200 MB, at last 1 MB at a time, until the kernel kills it.
A SIGKILL leaves nothing behind: where it grew is known only from what was seen when it came near the limit."""

import os
import sys
import time

EXPECT = {
    "kind": "oom-kill",
    "status": "established",
    "exit": 137,
    "signal": "SIGKILL",
    "role": "main",
    "user_function": None,
    "context_function": "collate",
    "headline": ["lack of memory", "before, Python was in collate ("],
}
CONTROL = {"kind": "clean", "exit": 0}
MEMORY_LIMIT_BYTES = 209715200


def collate(batches, count):
    for _ in range(count):
        batches.append(b"x" * (1 << 20))
        time.sleep(0.1)
    return len(batches)


with open(os.environ["ZOO_GROUP"] + "/cgroup.procs", "w") as members:
    members.write(str(os.getpid()))
print("collated", collate([b"x" * (165 << 20)], 3 if "--control" in sys.argv else 1000))
