"""A timer of CPU time that nobody handles runs out: SIGVTALRM, which no kind has for its own.
The kernel ends the process with that signal, and its name is what can be said."""

import signal
import sys

EXPECT = {
    "kind": "terminated",
    "status": "established",
    "exit": 154,
    "signal": "SIGVTALRM",
    "role": "main",
    "user_function": None,
    "headline": ["SIGVTALRM"],
}
CONTROL = {"kind": "clean", "exit": 0}

print("training")
if "--control" not in sys.argv:
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.01)
    while True:
        pass
