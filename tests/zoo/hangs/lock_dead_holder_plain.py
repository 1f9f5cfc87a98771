"""A thread died of an exception between acquire and release of a plain Lock; the only thread left wants it.

A Lock has no owner to read: that nobody can release it follows from the main thread being the only one. In the
control the thread that took it is alive and sleeps. Seen: one thread left, in a futex wait; py-spy has it in
read_cache.
"""

import signal
import sys
import threading
import time

from stage import say_ready

EXPECT = {
    "kind": "deadlock-lock",
    "status": "established",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "read_cache",
    "python_line_text": "with cache_lock:  # reader",
    "facts": ["cache_lock"],
}
CONTROL = {"kind": "waiting"}
LIMIT_S = 110

cache_lock = threading.Lock()
taken = threading.Event()


def fill_cache():
    cache_lock.acquire()
    taken.set()
    raise ValueError("nothing to put in")


def fill_cache_slowly():
    cache_lock.acquire()
    taken.set()
    time.sleep(LIMIT_S)


def read_cache():
    say_ready()
    with cache_lock:  # reader
        print("read")


signal.alarm(LIMIT_S)
control = "--control" in sys.argv
filler = threading.Thread(target=fill_cache_slowly if control else fill_cache, name="filler", daemon=True)
filler.start()
taken.wait()
if not control:
    filler.join()
read_cache()
