"""The main thread waits for one task of a thread pool, which stands; another task of the pool writes for ever.

In the control all tasks write. Seen: py-spy: MainThread in result, pool_0 in beat, pool_1 in fetch.
"""

import concurrent.futures
import signal
import sys
import threading
import time

from stage import say_ready

EXPECT = {
    "kind": "waiting",
    "moving": False,
    "pid_role": "main",
    "python_function": "collect",
    "python_line_text": "return future.result()",
    "facts": ["pool_0 moves", "beside the line of work"],
}
CONTROL = {"kind": "progressing", "status": "supported"}
LIMIT_S = 110


def beat(path):
    with open(path, "w", buffering=1) as log:
        while True:
            print("alive", file=log)
            time.sleep(0.2)


def fetch(answers):
    answers.wait()


def collect(future):
    return future.result()


signal.alarm(LIMIT_S)
with concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="pool") as pool:
    pool.submit(beat, "beats.log")
    control = "--control" in sys.argv
    task = pool.submit(beat, "parts.log") if control else pool.submit(fetch, threading.Event())
    say_ready()
    collect(task)
