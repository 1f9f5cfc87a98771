"""A server without clients.

That is what a server does: "waiting". In the control a client comes again and again. Seen: one thread, in accept4,
kernel stack inet_csk_accept.
"""

import json
import os
import signal
import socket
import sys
import time

EXPECT = {
    "kind": "waiting",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "serve",
    "python_line_text": "connection, _ = listener.accept()",
    "facts": ["serve"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def say_ready(**truth):
    path = os.environ["ZOO_READY"]
    with open(path + ".part", "w") as file:
        json.dump(truth, file)
    os.replace(path + ".part", path)


def run_elsewhere(function, *arguments):
    """In a process that is nobody's child any more, but in our group, so that it ends with us."""
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    if os.fork() == 0:
        signal.alarm(LIMIT_S)  # fork clears alarms
        function(*arguments)
    os._exit(0)


def visit(address):
    while True:
        with socket.create_connection(address) as connection:
            connection.recv(100)
        time.sleep(0.05)


def serve(listener):
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"nothing new\n")
        print("served", flush=True)


signal.alarm(LIMIT_S)
listener = socket.create_server(("127.0.0.1", 0))
if "--control" in sys.argv:
    run_elsewhere(visit, listener.getsockname())
say_ready()
serve(listener)
