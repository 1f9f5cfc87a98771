"""Near-miss: holds nearly all that its control group allows, is seen there, goes on, and ends itself with SIGKILL.
Nobody was killed for memory, so where it was when memory was short explains nothing."""

import os
import signal
import sys
import time

EXPECT = {
    "kind": "killed",
    "status": "established",
    "exit": 137,
    "signal": "SIGKILL",
    "role": "main",
    "user_function": None,
    "context_function": None,
    "headline": ["SIGKILL"],
    "not_in_headline": ["Python was in"],
}
CONTROL = {"kind": "clean", "exit": 0}
MEMORY_LIMIT_BYTES = 209715200


def collate(held_bytes):
    batch = b"x" * held_bytes
    time.sleep(1.5)  # it works on the batch
    return len(batch)


with open(os.environ["ZOO_GROUP"] + "/cgroup.procs", "w") as members:
    members.write(str(os.getpid()))
print("collated", collate(178 << 20))
os.kill(os.getpid(), 0 if "--control" in sys.argv else signal.SIGKILL)
