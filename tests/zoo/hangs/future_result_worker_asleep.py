"""The main thread waits for a task of a thread pool, which sleeps; a thread like ZeroMQ's heartbeat talks to itself.

In the control the task writes. Seen: py-spy: MainThread in result, the pool's thread in fetch.
"""

import concurrent.futures
import os
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
    "thread": "pool_0",
    "python_function": "fetch",
    "python_line_text": "time.sleep(3600)",
    "facts": ["MainThread → pool_0"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def beat():
    here, there = socket.socketpair()
    while True:
        os.write(here.fileno(), b"ping")
        os.write(there.fileno(), os.read(there.fileno(), 4))
        os.read(here.fileno(), 4)
        time.sleep(0.1)


def fetch(well):
    say_ready()
    if well:
        download("part.bin")
    time.sleep(3600)


def download(path):
    with open(path, "wb", buffering=0) as part:
        while True:
            part.write(bytes(1000))
            time.sleep(0.1)


signal.alarm(LIMIT_S)
threading.Thread(target=beat, name="heartbeat", daemon=True).start()
with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="pool") as pool:
    pool.submit(fetch, "--control" in sys.argv).result()
