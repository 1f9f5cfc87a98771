"""A child forked by a bare system call while another thread was inside malloc: its copy of the lock is never released.

libc's own fork() takes malloc's locks first; a library that calls clone() itself does not. The parent tries until a
child is stuck, then its thread rests. In the control the thread rests from the start and the child works. Seen: the
child has one thread, __lll_lock_wait_private below malloc, called from work_in_child.
"""

import ctypes
import os
import select
import signal
import sys
import time

from stage import say_ready

EXPECT = {
    "kind": "deadlock-fork",
    "status": "established",
    "pid_role": "worker",
    "thread": "MainThread",
    "python_function": "work_in_child",
    "python_line_text": "bytearray(500_000)",
    "facts": ["malloc's lock"],
}
CONTROL = {"kind": "progressing"}
BUILD = "malloc_fork.c"
LIMIT_S = 110
TRIES = 200
PATIENCE_S = 0.5


def work_in_child(told):
    kept = bytearray(500_000)
    os.write(told, b"!")
    while kept and "--control" in sys.argv:
        os.write(1, b"child works\n")
        time.sleep(0.05)
    os._exit(0)


def fork_until_stuck(library):
    for _ in range(TRIES):
        tell, told = os.pipe()
        child = library.zoo_fork_without_handlers()
        if child == 0:
            ctypes.pythonapi.PyOS_AfterFork_Child()  # as os.fork() does; what little it allocates is kept in reserve
            signal.alarm(LIMIT_S)  # fork clears alarms
            work_in_child(told)
        works = select.select([tell], [], [], PATIENCE_S)[0]
        os.close(told)
        if not works or "--control" in sys.argv:
            return child
        os.waitpid(child, 0)
        os.close(tell)
    sys.exit(77)


signal.alarm(LIMIT_S)
library = ctypes.PyDLL(os.environ["ZOO_LIB"])  # with the GIL: the child has it, too
library.zoo_start_trimming("--control" not in sys.argv)
child = fork_until_stuck(library)
library.zoo_stop_trimming()
say_ready(pid=child)
os.waitpid(child, 0)
