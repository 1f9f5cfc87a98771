"""Three threads in a ring, each with one RLock and waiting for the next one's; the main thread joins.

An RLock knows its owner, so the ring can be read from memory. In the control all take them in one order and go on.
Seen: four threads in futex waits; py-spy has three on the lines of the ring, gdb's rlock_owner of each is the next.
"""

import signal
import sys
import threading
import time

from stage import say_ready

EXPECT = {
    "kind": "deadlock-lock",
    "pid_role": "main",
    "thread": "loader",
    "python_function": "load",
    "python_line_text": "with index_lock:  # loader",
    "cycle": [
        {"thread": "loader", "function": "load", "line_text": "with index_lock:  # loader"},
        {"thread": "indexer", "function": "index", "line_text": "with store_lock:  # indexer"},
        {"thread": "storer", "function": "store", "line_text": "with cache_lock:  # storer"},
    ],
    "facts": ["cache_lock", "index_lock", "store_lock"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110

cache_lock = threading.RLock()
index_lock = threading.RLock()
store_lock = threading.RLock()
all_three = threading.Barrier(3, action=lambda: say_ready())


def load():
    with cache_lock:
        all_three.wait()
        with index_lock:  # loader
            print("loaded")


def index():
    with index_lock:
        all_three.wait()
        with store_lock:  # indexer
            print("indexed")


def store():
    with store_lock:
        all_three.wait()
        with cache_lock:  # storer
            print("stored")


def work_in_order():
    all_three.wait()
    while True:
        with cache_lock, index_lock, store_lock:
            print(threading.current_thread().name, "has all three", flush=True)
            time.sleep(0.05)


def run(steps):
    threads = [threading.Thread(target=step, name=name, daemon=True) for name, step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


signal.alarm(LIMIT_S)
if "--control" in sys.argv:
    run([("loader", work_in_order), ("indexer", work_in_order), ("storer", work_in_order)])
else:
    run([("loader", load), ("indexer", index), ("storer", store)])
