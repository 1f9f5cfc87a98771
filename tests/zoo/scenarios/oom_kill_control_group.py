"""Reads its training set into a control group that is limited to 200 MB.
The kernel kills the process at the limit, counts it in the group and says so in its log."""

import os
import sys

EXPECT = {
    "kind": "oom-kill",
    "status": "established",
    "exit": 137,
    "signal": "SIGKILL",
    "role": "main",
    "user_function": None,
    "headline": ["lack of memory"],
}
CONTROL = {"kind": "clean", "exit": 0}
MEMORY_LIMIT_BYTES = 209715200


def load_training_set(count):
    return [b"x" * (1 << 20) for _ in range(count)]


with open(os.environ["ZOO_GROUP"] + "/cgroup.procs", "w") as members:
    members.write(str(os.getpid()))
print("loaded", len(load_training_set(20 if "--control" in sys.argv else 1000)))
