"""read() of a FIFO that was opened for both ways, so that it has no writer but the reader itself.

In the control there is another writer. Seen: state S in read, kernel stack anon_pipe_read, on a descriptor whose path
is the FIFO's.
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
    "python_function": "read_signals",
    "python_line_text": "line = os.read(signals, 100)",
    "facts": ["signals.fifo"],
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


def write_signals(path):
    with open(path, "w") as signals:
        while True:
            print("proceed", file=signals, flush=True)
            time.sleep(0.05)


def read_signals(path):
    signals = os.open(path, os.O_RDWR)
    say_ready()
    while True:
        line = os.read(signals, 100)
        print("signal", line.decode(), end="", flush=True)


signal.alarm(LIMIT_S)
path = os.path.join(tempfile.mkdtemp(), "signals.fifo")
os.mkfifo(path)
if "--control" in sys.argv:
    run_elsewhere(write_signals, path)
read_signals(path)
