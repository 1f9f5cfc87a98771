"""A server without clients.

That is what a server does: "waiting". In the control a client comes again and again. Seen: one thread, in accept4,
kernel stack inet_csk_accept.
"""

import signal
import socket
import sys
import time

from stage import run_elsewhere, say_ready

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
