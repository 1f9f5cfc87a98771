"""queue.get() of a queue that nobody fills.

The only thread waits without a timeout for what only a thread of its own could put there: a queue.Queue belongs to one
process, SIGALRM ends it and has no handler, and Ctrl-C is no way on. So nothing is left that could wake it. In the
control a second thread fills the queue. Seen: one thread, in a private futex wait; py-spy has it in take_job.
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
    "python_function": "take_job",
    "python_line_text": "job = jobs.get()",
    "facts": ["take_job", "jobs.get()", "nobody is left"],
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
