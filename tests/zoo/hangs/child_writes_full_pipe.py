"""wait() on a child that is in one single write of more than its pipe holds.

A stop in the middle of that write makes it return early, with the part that the pipe took: whoever looks on by stopping
it sees 65,536 bytes move, and the child is set free or writes again. In the control the parent reads slowly. Seen: the
child in write, FIONREAD the size of the pipe, /proc/PID/io at rest.
"""

import fcntl
import os
import signal
import subprocess
import sys
import termios
import time

from stage import say_ready

EXPECT = {
    "kind": "blocked-child",
    "pid_role": "child",
    "thread": "MainThread",
    "python_function": "write_all",
    "python_line_text": "os.write(1, data)",
    "facts": ["pipe", "write_all"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110
LARGE = 1 << 22
F_GETPIPE_SZ = 1032  # fcntl has it since 3.10


def write_all():
    data = bytes(LARGE)
    os.write(1, data)


def wait_until_full(pipe):
    size = fcntl.fcntl(pipe, F_GETPIPE_SZ)
    while int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder) < size:
        time.sleep(0.01)


def run_child():
    child = subprocess.Popen([sys.executable, __file__, "--child"], stdout=subprocess.PIPE)
    wait_until_full(child.stdout)
    say_ready(pid=child.pid)
    if "--control" in sys.argv:
        while part := os.read(child.stdout.fileno(), 4096):
            print(len(part), flush=True)
            time.sleep(0.1)
    return child.wait()


signal.alarm(LIMIT_S)
if "--child" in sys.argv:
    write_all()
else:
    run_child()
