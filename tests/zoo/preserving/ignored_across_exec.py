"""SIGSEGV and SIGABRT are ignored, then the program executes itself, a shell and a child that aborts.
exec keeps SIG_IGN, so kill does nothing; abort(3) takes the disposition away and dies of SIGABRT all the same."""

import faulthandler
import os
import signal
import subprocess
import sys

BARE = {"exit": 0}

WATCHED = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP", "SIGSYS")


def list_ignored():
    with open("/proc/self/status") as status:
        mask = next(int(line.split()[1], 16) for line in status if line.startswith("SigIgn"))
    return [name for name in WATCHED if mask >> (signal.Signals[name] - 1) & 1]


def abort_in_child():
    pid = os.fork()
    if pid == 0:
        os.abort()
    return os.WTERMSIG(os.waitpid(pid, 0)[1])


faulthandler.disable()  # gives back what it found
if "--after-exec" not in sys.argv:
    signal.signal(signal.SIGSEGV, signal.SIG_IGN)
    signal.signal(signal.SIGABRT, signal.SIG_IGN)
    print("before exec", list_ignored(), flush=True)
    os.execv(sys.executable, [sys.executable, __file__, "--after-exec"])
print("after exec", list_ignored(), flush=True)
os.kill(os.getpid(), signal.SIGSEGV)
os.kill(os.getpid(), signal.SIGABRT)
subprocess.run(["sh", "-c", "kill -ABRT $$; kill -SEGV $$; echo the shell goes on"], check=True)
print("aborted child ended with signal", abort_in_child())
