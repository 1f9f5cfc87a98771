"""Queue.join(), and the thread that took the last job has died of an exception before task_done().

In the control it is done, and the next round begins. Seen: one thread, in a private futex wait; py-spy has it in
finish, unfinished_tasks is 1.
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
    "python_function": "finish",
    "python_line_text": "jobs.join()",
    "facts": ["jobs.join()", "nobody is left"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110

jobs = queue.Queue()


def work():
    job = jobs.get()
    if "--control" not in sys.argv:
        raise ValueError(f"{job} is not valid")
    print("done", job, flush=True)
    time.sleep(0.05)
    jobs.task_done()


def finish():
    jobs.join()


signal.alarm(LIMIT_S)
while True:
    worker = threading.Thread(target=work, name="worker")
    worker.start()
    jobs.put("job")
    worker.join()
    say_ready()
    finish()
