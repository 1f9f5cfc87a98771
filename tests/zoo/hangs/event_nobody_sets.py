"""The main thread waits for a job, the thread that should make it for an event that nobody sets.

Both are in waits of their own process without a timeout, and there is no third one: nobody is left who could wake
either. In the control Ctrl-C has a handler, which sets the event. Seen: two threads in private futex waits; py-spy
has them in take_job and make_jobs; SigCgt has SIGINT in both, for Python has a handler that raises KeyboardInterrupt.
"""

import queue
import signal
import sys
import threading

from stage import say_ready

EXPECT = {
    "kind": "deadlock-lock",
    "status": "established",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "take_job",
    "python_line_text": "return jobs.get()",
    "cycle": [
        {"thread": "MainThread", "function": "take_job", "line_text": "return jobs.get()"},
        {"thread": "maker", "function": "make_jobs", "line_text": "permitted.wait()"},
    ],
    "facts": ["nobody is left", "jobs.get()", "permitted.wait()", "maker"],
}
CONTROL = {"kind": "waiting"}
LIMIT_S = 110

jobs = queue.Queue()
permitted = threading.Event()


def make_jobs():
    permitted.wait()
    jobs.put("job")


def take_job():
    return jobs.get()


def permit(signo, frame):
    permitted.set()


signal.signal(signal.SIGINT, permit if "--control" in sys.argv else signal.default_int_handler)
signal.alarm(LIMIT_S)
threading.Thread(target=make_jobs, name="maker").start()
say_ready()
take_job()
