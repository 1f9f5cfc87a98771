"""The parent reads the answer of a child that is dead: it kept the writing end of the pipe, so no end of file comes.

In the control the child is alive and answers. Seen: the parent in read, kernel stack anon_pipe_read; waitid with
WNOWAIT has the child as a zombie before it is ready.
"""

import os
import signal
import sys
import time

from stage import say_ready

EXPECT = {
    "kind": "blocked-child",
    "weaker": ["blocked-io"],
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "read_answer",
    "python_line_text": "return os.read(reader, 100)",
    "facts": ["zombie"],
}
CONTROL = {"kind": "progressing", "weaker": ["waiting"]}
LIMIT_S = 110


def answer(writer):
    signal.alarm(LIMIT_S)  # fork clears alarms
    while True:
        os.write(writer, b"answer\n")
        time.sleep(0.05)


def read_answer(reader):
    return os.read(reader, 100)


signal.alarm(LIMIT_S)
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    if "--control" in sys.argv:
        answer(writer)
    os._exit(1)
if "--control" in sys.argv:
    say_ready()
    while True:
        print(read_answer(reader).decode(), end="", flush=True)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # it is a zombie and stays one
say_ready(facts=[str(child)])
read_answer(reader)
