"""A child that is no Python computes for minutes, as a compiler does, while its parent waits for its end.

Slow or endless, nobody can tell: it is busy, and neither stuck nor of Python. The control's child tells a log how far
it is. Seen: the child in state R with CPU time that grows, no counter; the parent in wait4.
"""

import os
import signal
import subprocess
import sys
import tempfile

from stage import say_ready

EXPECT = {
    "kind": "busy-native",
    "pid_role": "child",
    "thread": None,
    "python_function": None,
    "python_line_text": None,
    "facts": [],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110
COMPUTES = "ulimit -t 110; while :; do :; done"
TELLS = "ulimit -t 110; while :; do echo step; sleep 0.1; done"


def build():
    log = open(os.path.join(tempfile.mkdtemp(), "build.log"), "w")
    child = subprocess.Popen(["/bin/sh", "-c", TELLS if "--control" in sys.argv else COMPUTES], stdout=log)
    say_ready(pid=child.pid)
    child.wait()


signal.alarm(LIMIT_S)
build()
