"""timeout(1), below a shell, ends a Python that works for too long: it sends SIGTERM and leaves with 124.
What ended is the Python, of that signal; 124 is how timeout(1) passes it on. The control comes to its end in time."""

import sys
import time

EXPECT = {
    "kind": "terminated",
    "status": "established",
    "exit": 124,
    "signal": "SIGTERM",
    "role": "child",
    "headline": ["SIGTERM", "timeout"],
}
SHIM_UNPRIVILEGED = {
    "headline": ["SIGTERM"]
}  # who sent a signal is told by the kernel to root, and by the preloaded library
CONTROL = {"kind": "clean", "exit": 0}
COMMAND = ["sh", "-c", "timeout 1 {python} {file} {control}; exit $?"]

if "--control" not in sys.argv:
    time.sleep(100)
