"""`sh -c "python job.py | cat > log"`: the job waits for a queue that nobody fills, a thread of it prints; cat writes.

In the control the main thread prints. Seen: py-spy: MainThread in train, in Queue.get; bytes written by cat.
"""

import os
import queue
import shlex
import signal
import sys
import threading
import time

from stage import say_ready

EXPECT = {
    "kind": "waiting",
    "moving": False,
    "pid_role": "child",
    "thread": "MainThread",
    "python_function": "train",
    "python_line_text": "return queue.Queue().get()",
    "facts": ["moves (bytes written +", "beside the line of work"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def beat():
    while True:
        print("alive", flush=True)
        time.sleep(0.2)


def train():
    return queue.Queue().get()


signal.alarm(LIMIT_S)
if "--job" in sys.argv:
    say_ready(pid=os.getpid())
    if "--control" in sys.argv:
        beat()
    threading.Thread(target=beat, name="heart", daemon=True).start()
    train()
else:
    job = shlex.join([sys.executable, __file__, "--job", *sys.argv[1:]])
    os.execv("/bin/sh", ["sh", "-c", f"{job} | cat > passed.log; true"])
