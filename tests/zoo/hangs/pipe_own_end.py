"""read() of a pipe whose writing end nobody has but the reader itself, who never closed it: no end of file will come.

In the control a process of no family, which inherited it, writes there after the look: a wait, and no fault. Seen:
state S in read, kernel stack anon_pipe_read.
"""

import os
import signal
import sys
import time

from stage import run_elsewhere, say_ready

EXPECT = {
    "kind": "blocked-io",
    "status": "established",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "collect",
    "python_line_text": "while part := os.read(parts, 100):",
    "facts": ["pipe:[", "whose only writer is itself", "no other process has its other end open"],
}
CONTROL = {"kind": "waiting"}
LIMIT_S = 110
LATE_S = 60


def write_late(end):
    time.sleep(LATE_S)
    os.write(end, b"part")


def collect(parts):
    say_ready()
    while part := os.read(parts, 100):
        print("part", part, flush=True)


signal.alarm(LIMIT_S)
parts, end = os.pipe()
if "--control" in sys.argv:
    run_elsewhere(write_late, end)
collect(parts)
