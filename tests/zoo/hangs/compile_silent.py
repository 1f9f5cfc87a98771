"""A build that captures all output, and whose compiler, below a shell of its own, has been stopped by a signal.

In the control the compiler computes for minutes, to write all at the end: slow or endless, and no fault. Seen: the
parent in poll on two pipes, the shell in wait4, the compiler in state T, in the control R without a counter that moves.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

from stage import say_ready

EXPECT = {
    "kind": "stopped",
    "status": "established",
    "pid_role": "child",
    "thread": None,
    "python_function": None,
    "python_line_text": None,
    "facts": ["SIGSTOP"],
}
CONTROL = {"kind": "busy-native"}
LIMIT_S = 110
COMPILES = "echo $$ > {0}.part; mv {0}.part {0}; {1} ulimit -t 110; while :; do :; done; echo built"


def build(started):
    compiler = COMPILES.format(started, "" if "--control" in sys.argv else "kill -STOP $$;")
    return subprocess.run(["/bin/sh", "-c", f"sh -c '{compiler}'; echo linked"], capture_output=True)


def announce(started):
    """From a process beside it: the build itself only waits."""
    while not os.path.exists(started):
        time.sleep(0.01)
    with open(started) as file:
        compiler = int(file.read())
    stopped = "--control" in sys.argv
    while not stopped:
        time.sleep(0.01)
        with open(f"/proc/{compiler}/stat") as file:
            stopped = file.read().rpartition(")")[2].split()[0] == "T"
    say_ready(pid=compiler)
    os._exit(0)


signal.alarm(LIMIT_S)
started = os.path.join(tempfile.mkdtemp(), "started")
if os.fork() == 0:
    if os.fork() == 0:
        announce(started)
    os._exit(0)
os.wait()
build(started)
