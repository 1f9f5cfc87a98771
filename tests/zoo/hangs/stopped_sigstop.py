"""Someone outside has sent SIGSTOP.

In the control SIGSTOP was followed by SIGCONT. Seen: state T, kernel stack do_signal_stop, nothing printed any more;
py-spy --nonblocking has train.
"""

import os
import signal
import sys
import time

from stage import run_elsewhere, say_ready

EXPECT = {
    "kind": "stopped",
    "status": "established",
    "pid_role": "main",
    "thread": None,
    "python_function": "train",
    "python_line_text": None,
    "facts": ["SIGSTOP"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def stop(pid, started):
    """A stopped process takes no SIGTERM and no SIGALRM: whoever ends the group ends it through here."""
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGCONT))
    signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
    os.read(started, 1)
    os.kill(pid, signal.SIGSTOP)
    while read_state(pid) != "T":
        time.sleep(0.01)
    if "--control" in sys.argv:
        os.kill(pid, signal.SIGCONT)
    say_ready()
    signal.pause()


def read_state(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]


def train(start):
    os.write(start, b".")
    while True:
        print("step", flush=True)
        time.sleep(0.02)


signal.alarm(LIMIT_S)
started, start = os.pipe()
run_elsewhere(stop, os.getpid(), started)
train(start)
