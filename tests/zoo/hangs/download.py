"""A download into memory, from a server that has stopped to send in the middle of it.

In the control the server is only slow: a thousand bytes, five times a second. Bytes that come in are no progress, for
a stuck program may go on reading too, but they are no fault either. Seen: both in state S in recvfrom; of the control
rchar in /proc/PID/io rises.
"""

import signal
import socket
import sys
import time

from stage import run_elsewhere, say_ready

EXPECT = {
    "kind": "waiting",
    "status": "supported",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "fetch",
    "python_line_text": "while part := connection.recv(65536):",
    "facts": ["127.0.0.1", "whether somebody answers cannot be known from here"],
}
CONTROL = {"kind": "waiting"}
LIMIT_S = 110
PART = b"x" * 1000


def serve(listener):
    connection, _ = listener.accept()
    connection.sendall(PART)
    while "--control" in sys.argv:
        connection.sendall(PART)
        time.sleep(0.2)
    time.sleep(LIMIT_S)


def fetch(connection):
    parts = [connection.recv(len(PART), socket.MSG_WAITALL)]
    say_ready()
    while part := connection.recv(65536):
        parts.append(part)
    return parts


signal.alarm(LIMIT_S)
listener = socket.create_server(("127.0.0.1", 0))
run_elsewhere(serve, listener)
with listener:
    address = listener.getsockname()
with socket.create_connection(address) as connection:
    fetch(connection)
