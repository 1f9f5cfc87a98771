"""Ends itself with SIGKILL while it holds most of what its control group allows.
No OOM: the group has counted no kill, the kernel has said nothing. High memory is no proof."""

import os
import signal
import sys

EXPECT = {
    "kind": "killed",
    "status": "established",
    "exit": 137,
    "signal": "SIGKILL",
    "role": "main",
    "user_function": None,
    "headline": ["SIGKILL"],
}
CONTROL = {"kind": "clean", "exit": 0}
MEMORY_LIMIT_BYTES = 209715200


def train(held_bytes, signo):
    batch = b"x" * held_bytes
    os.kill(os.getpid(), signo)
    print("trained on", len(batch))


with open(os.environ["ZOO_GROUP"] + "/cgroup.procs", "w") as members:
    members.write(str(os.getpid()))
train(170 << 20, 0 if "--control" in sys.argv else signal.SIGKILL)
