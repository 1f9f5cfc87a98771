"""Burns more CPU time than RLIMIT_CPU allows.
At the soft limit the kernel sends SIGXCPU, whose default action ends the process (man 2 setrlimit)."""

import resource
import sys
import time

EXPECT = {
    "kind": "resource-limit",
    "status": "established",
    "exit": 152,
    "signal": "SIGXCPU",
    "role": "main",
    "user_function": None,
    "headline": ["SIGXCPU", "1 s of CPU time are allowed (ulimit -t)"],
}
SHIM_UNPRIVILEGED = {
    "status": "supported"
}  # who sent a signal is told by the kernel to root, and by the preloaded library
CONTROL = {"kind": "clean", "exit": 0}


def tokenise_corpus(cpu_s):
    while time.process_time() < cpu_s:
        sum(range(1000))
    print("tokenised")


# One second is the smallest limit the kernel knows.
resource.setrlimit(resource.RLIMIT_CPU, (1, resource.getrlimit(resource.RLIMIT_CPU)[1]))
tokenise_corpus(0.2 if "--control" in sys.argv else 5.0)
