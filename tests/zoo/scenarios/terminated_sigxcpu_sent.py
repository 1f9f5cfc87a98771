"""Someone sends SIGXCPU, as a scheduler does before the time is up: no limit of CPU time was reached.
The twin of resource_limit_cpu, with the same signal: who sent it decides, and the kernel did not."""

import os
import signal
import sys

EXPECT = {
    "kind": "terminated",
    "status": "established",
    "exit": 152,
    "signal": "SIGXCPU",
    "role": "main",
    "user_function": None,
    "headline": ["SIGXCPU", "sent by process"],
}
SHIM_UNPRIVILEGED = {
    "headline": ["SIGXCPU"]
}  # who sent a signal is told by the kernel to root, and by the preloaded library
CONTROL = {"kind": "clean", "exit": 0}
SENDS = "SIGXCPU"


def train_until_stopped():
    print("training")
    if "--control" in sys.argv:
        return
    with open(os.environ["ZOO_READY"], "w") as ready:
        ready.write("ready\n")
    signal.pause()


train_until_stopped()
