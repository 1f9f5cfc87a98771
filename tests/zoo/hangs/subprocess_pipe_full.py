"""wait() on a subprocess that has more to say than its pipe holds.

Only the parent could empty the pipe. In the control the parent reads. Seen: the parent in wait4; the child in write,
kernel stack anon_pipe_write, py-spy has it in write_report; FIONREAD is the size of the pipe.
"""

import fcntl
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
    "python_function": "write_report",
    "python_line_text": "sys.stdout.write(line)",
    "facts": ["pipe", "write_report"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110
F_GETPIPE_SZ = 1032  # fcntl has it since 3.10


def write_report(pause_s):
    line = "." * 4095 + "\n"  # whole pages, so that the pipe gets full to the last byte
    while True:
        sys.stdout.write(line)
        time.sleep(pause_s)


def wait_until_full(pipe):
    size = fcntl.fcntl(pipe, F_GETPIPE_SZ)
    while int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder) < size:
        time.sleep(0.01)


def run_report(pause_s):
    report = subprocess.Popen([sys.executable, __file__, "--report", pause_s], stdout=subprocess.PIPE)
    if "--control" in sys.argv:
        say_ready()
        for line in report.stdout:
            print(line.decode().strip(), flush=True)
    wait_until_full(report.stdout)
    say_ready(pid=report.pid)
    return report.wait()


signal.alarm(LIMIT_S)
if "--report" in sys.argv:
    write_report(float(sys.argv[2]))
else:
    run_report("0.1" if "--control" in sys.argv else "0")
