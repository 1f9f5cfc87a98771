"""Two processes that are no family, each of which reads what only the other could write.

In the control the other one works for a while, to answer after the look: a wait, and no fault. Seen: both in state S
in read, on a pipe whose one other writer is the other process.
"""

import os
import signal
import sys
import time

from stage import run_elsewhere, say_ready

EXPECT = {
    "kind": "blocked-io",
    "status": "established",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "ask",
    "python_line_text": "return os.read(answers, 100)  # asker",
    "facts": ["pipe:[", "itself waits for process"],
}
CONTROL = {"kind": "waiting"}
LIMIT_S = 110
LATE_S = 60


def answer(questions, answers, started):
    os.write(started, b"%d\n" % os.getpid())
    if "--control" in sys.argv:
        time.sleep(LATE_S)
    os.read(questions, 100)
    os.write(answers, b"42")


def ask(answers):
    return os.read(answers, 100)  # asker


signal.alarm(LIMIT_S)
questions, questions_out = os.pipe()
answers, answers_out = os.pipe()
started, started_out = os.pipe()
run_elsewhere(answer, questions, answers_out, started_out)
other = os.read(started, 100).decode().strip()
say_ready(facts=[other])
ask(answers)
