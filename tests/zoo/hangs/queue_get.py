"""queue.get() of a queue that nobody fills.

All asleep, no cycle: from outside a lost queue and a worker without work look alike, so it is "waiting". In the
control a second thread fills the queue. Seen: one thread, in a futex wait; py-spy has it in take_job.
"""

import queue
import signal
import sys
import threading
import time

from stage import say_ready

EXPECT = {
    "kind": "waiting",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "take_job",
    "python_line_text": "job = jobs.get()",
    "facts": ["take_job"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110

jobs = queue.Queue()


def take_job():
    job = jobs.get()
    print("job", job, flush=True)


def make_jobs():
    while True:
        jobs.put(time.monotonic())
        time.sleep(0.05)


signal.alarm(LIMIT_S)
if "--control" in sys.argv:
    threading.Thread(target=make_jobs, name="maker", daemon=True).start()
say_ready()
while True:
    take_job()
