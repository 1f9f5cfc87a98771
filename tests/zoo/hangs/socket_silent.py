"""recv() from a server on loopback that accepts, says so, and never answers.

It may still answer: whether it ever will cannot be seen from outside, so this is a wait and no fault. In the control
the server answers. Seen: state S in recvfrom, kernel stack wait_woken, the peer in /proc/net/tcp; the server is no
child and sleeps.
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
    "python_function": "ask",
    "python_line_text": "return connection.recv(100)",
    "facts": ["127.0.0.1", "whether somebody answers cannot be known from here"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def serve(listener):
    connection, _ = listener.accept()
    connection.sendall(b"!")
    while "--control" in sys.argv:
        connection.sendall(connection.recv(100))
        time.sleep(0.05)
    time.sleep(LIMIT_S)


def ask(connection):
    connection.sendall(b"how many rows?")
    return connection.recv(100)


signal.alarm(LIMIT_S)
listener = socket.create_server(("127.0.0.1", 0))
run_elsewhere(serve, listener)
with listener:
    address = listener.getsockname()
with socket.create_connection(address) as connection:
    connection.recv(1)
    if "--control" in sys.argv:
        say_ready()
        while True:
            print(ask(connection).decode(), flush=True)
    say_ready(facts=[f"127.0.0.1:{address[1]}"])
    ask(connection)
