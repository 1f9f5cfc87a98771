"""wait() for any child: one reads from a server that never answers, the other one writes for ever.

In the control that one gets an answer now and then, and writes as well. Seen: py-spy: MainThread in watch, of the child
MainThread in fetch; /proc/PID/syscall: wait4(-1).
"""

import os
import signal
import socket
import sys
import time

from stage import say_ready

EXPECT = {
    "kind": "waiting",
    "moving": False,
    "pid_role": "worker",
    "thread": "MainThread",
    "python_function": "fetch",
    "python_line_text": "answer = connection.recv(10)",
    "facts": ["moves (", "beside the line of work"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def start(function, *arguments):
    pid = os.fork()
    if pid == 0:
        signal.alarm(LIMIT_S)
        function(*arguments)
        os._exit(0)
    return pid


def beat():
    with open("beats.log", "w", buffering=1) as log:
        while True:
            print("alive", file=log)
            time.sleep(0.2)


def serve(listening):
    connection = listening.accept()[0]
    while True:
        if "--control" in sys.argv:
            connection.sendall(b"part")
        time.sleep(0.1)


def fetch(address):
    connection = socket.create_connection(address)
    with open("parts.log", "w", buffering=1) as log:
        while True:
            answer = connection.recv(10)
            print(answer, file=log)


def watch():
    os.wait()


signal.alarm(LIMIT_S)
server = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    if os.fork() == 0:
        signal.alarm(LIMIT_S)
        serve(server)
    os._exit(0)
os.wait()
start(beat)
stuck = start(fetch, server.getsockname())
say_ready(pid=stuck)
watch()
