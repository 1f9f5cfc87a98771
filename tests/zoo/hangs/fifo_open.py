"""open() of a FIFO that nobody opens for writing.

There is no descriptor yet, the path stands only in memory. In the control there is a writer. Seen: state S in openat,
kernel stack wait_for_partner.
"""

import json
import os
import signal
import sys
import tempfile
import time

EXPECT = {
    "kind": "blocked-io",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "read_commands",
    "python_line_text": "with open(path) as commands:",
    "facts": ["commands.fifo"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def say_ready(**truth):
    path = os.environ["ZOO_READY"]
    with open(path + ".part", "w") as file:
        json.dump(truth, file)
    os.replace(path + ".part", path)


def run_elsewhere(function, *arguments):
    """In a process that is nobody's child any more, but in our group, so that it ends with us."""
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    if os.fork() == 0:
        signal.alarm(LIMIT_S)  # fork clears alarms
        function(*arguments)
    os._exit(0)


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
