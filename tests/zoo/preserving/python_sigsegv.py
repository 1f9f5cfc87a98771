"""signal.signal(SIGSEGV, f), then three times os.kill: Python's own handler runs f.
A signal that was sent is no fault: the C handler sets a flag and returns, and the program goes on."""

import os
import signal

BARE = {"exit": 0}


def note(signo, frame):
    print("got", signal.Signals(signo).name, "in", frame.f_code.co_name, flush=True)


def work():
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGSEGV)


signal.signal(signal.SIGSEGV, note)
work()
print("handler is note:", signal.getsignal(signal.SIGSEGV) is note)
