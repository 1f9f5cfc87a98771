"""A tracer has attached and keeps the process stopped.

In the control the process is traced as well, but runs: PTRACE_SEIZE does not stop it. Seen: state t, kernel stack
ptrace_stop, TracerPid is the tracer; py-spy --nonblocking has train.
"""

import ctypes
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
    "facts": ["tracer"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110
PR_SET_PTRACER, PR_SET_PTRACER_ANY = 0x59616D61, ctypes.c_ulong(-1)  # Yama lets nobody but ancestors attach
PTRACE_CONT, PTRACE_ATTACH, PTRACE_SEIZE = 7, 16, 0x4206
WALL = 0x40000000

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def trace(pid, started):
    """When the tracer ends, the kernel lets the process go on, and it takes the signal that ends the group.

    A tracer that lets it run outlives it, for a signal on its way through a tracer that ends is lost."""
    os.read(started, 1)
    if libc.ptrace(PTRACE_SEIZE if "--control" in sys.argv else PTRACE_ATTACH, pid, None, None) != 0:
        os.kill(pid, signal.SIGKILL)
    if "--control" not in sys.argv:
        os.waitpid(pid, WALL)
        say_ready(facts=[str(os.getpid())])
        signal.pause()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say_ready()
    while True:
        _, status = os.waitpid(pid, WALL)
        if not os.WIFSTOPPED(status):
            return
        libc.ptrace(PTRACE_CONT, pid, None, os.WSTOPSIG(status))


def train(start):
    os.write(start, b".")
    while True:
        print("step", flush=True)
        time.sleep(0.02)


signal.alarm(LIMIT_S)
libc.prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0)
started, start = os.pipe()
run_elsewhere(trace, os.getpid(), started)
train(start)
