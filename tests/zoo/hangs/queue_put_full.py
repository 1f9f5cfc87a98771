"""queue.put() on a full queue whose consumer died of an exception.

It waits for `not_full`, which nobody can notify any more. In the control the consumer is alive and slow. Seen: the
main thread is the only one left, in a futex wait; py-spy has it in feed.
"""

import queue
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
    "python_function": "feed",
    "python_line_text": "rows.put(row)",
    "facts": ["feed"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110

rows = queue.Queue(maxsize=4)


def consume_once():
    raise ValueError(f"row {rows.get()} is not valid")


def consume_slowly():
    while True:
        print("row", rows.get(), flush=True)
        time.sleep(0.1)


def feed(consumer):
    row = "0.25 0.75"
    rows.put_nowait("first")
    if "--control" not in sys.argv:
        consumer.join()
    while True:
        if rows.full():
            say_ready()
        rows.put(row)


signal.alarm(LIMIT_S)
target = consume_slowly if "--control" in sys.argv else consume_once
thread = threading.Thread(target=target, name="consumer", daemon=True)
thread.start()
feed(thread)
