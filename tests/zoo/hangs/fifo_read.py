"""read() of a FIFO that was opened for both ways, so that it has no writer but the reader itself.

Anybody may still open it for writing, as one does who serves commands and wants to see no end of file: a wait, and no
fault. In the control there is another writer. Seen: state S in read, kernel stack anon_pipe_read, on a descriptor whose
path is the FIFO's.
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
    "python_function": "read_signals",
    "python_line_text": "line = os.read(signals, 100)",
    "facts": ["signals.fifo"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


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
