"""open() of a FIFO that nobody opens for writing.

Whoever knows its name may still come: that is how an idle server waits, so that it is told as a wait. There is no
descriptor yet, the path stands only in memory. In the control there is a writer. Seen: state S in openat,
kernel stack wait_for_partner.
"""

import os
import signal
import sys
import tempfile
import time

from stage import run_elsewhere, say_ready

EXPECT = {
    "kind": "waiting",
    "status": "supported",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "read_commands",
    "python_line_text": "with open(path) as commands:",
    "facts": ["commands.fifo"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def write_commands(path):
    with open(path, "w") as commands:
        while True:
            print("go on", file=commands, flush=True)
            time.sleep(0.05)


def read_commands(path):
    say_ready()
    with open(path) as commands:
        for command in commands:
            print("command", command, end="", flush=True)


signal.alarm(LIMIT_S)
path = os.path.join(tempfile.mkdtemp(), "commands.fifo")
os.mkfifo(path)
if "--control" in sys.argv:
    run_elsewhere(write_commands, path)
read_commands(path)
