"""The main thread reads from a server that never answers; faulthandler's own thread writes a traceback again and again.

It has no Python, and what it writes is about the hang. In the control the main thread gets answers, and writes. Seen:
py-spy: MainThread in fetch; the log grows.
"""

import faulthandler
import signal
import socket
import sys
import threading
import time

from stage import say_ready

EXPECT = {
    "kind": "waiting",
    "moving": False,
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "fetch",
    "python_line_text": "answer = connection.recv(10)",
    "facts": ["moves (", "beside the line of work"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def answer_now_and_then(other):
    while True:
        other.sendall(b"part")
        time.sleep(0.1)


def fetch(connection):
    while True:
        answer = connection.recv(10)
        print(answer, flush=True)


signal.alarm(LIMIT_S)
here, there = socket.socketpair()
tracebacks = open("tracebacks.log", "w")
faulthandler.dump_traceback_later(0.3, repeat=True, file=tracebacks)
if "--control" in sys.argv:
    threading.Thread(target=answer_now_and_then, args=(there,), daemon=True).start()
say_ready()
fetch(here)
