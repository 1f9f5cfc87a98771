"""The main thread has the GIL and waits for a mutex of a C library; its owner calls back, and so waits for the GIL.

PyDLL does not release the GIL. The control makes the same call through CDLL, which releases it, and tells each. Seen:
gdb has pthread_mutex_lock under zoo_add_row on the main thread, with __owner the thread id of "visitor", and take_gil
on that.
"""

import ctypes
import os
import signal
import sys
import threading
import time

EXPECT = {
    "kind": "deadlock-lock",
    "status": "established",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "add_row",
    "python_line_text": "library.zoo_add_row()",
    "facts": ["GIL", "mutex", "visitor", "MainThread"],
}
CONTROL = {"kind": "progressing"}
BUILD = "mutex_callback.c"
LIMIT_S = 110

free = ctypes.CDLL(os.environ["ZOO_LIB"])
library = free if "--control" in sys.argv else ctypes.PyDLL(os.environ["ZOO_LIB"])


@ctypes.CFUNCTYPE(None)
def show():
    print("row", flush=True)


def visit():
    while True:
        free.zoo_visit(show)
        time.sleep(0.05)


def add_row():
    library.zoo_add_row()


signal.alarm(LIMIT_S)
ready = os.environ["ZOO_READY"].encode()
news = ready + b".part"
with open(news, "w") as file:
    file.write("{}")
free.zoo_tell_by(news, ready)
threading.Thread(target=visit, name="visitor", daemon=True).start()
while True:
    while not free.zoo_is_owned():
        time.sleep(0.01)
    add_row()
    print("added", flush=True)
