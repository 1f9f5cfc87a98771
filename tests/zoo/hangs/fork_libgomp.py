"""GNU libgomp after fork, with real torch: the child inherits a thread pool without its threads (pytorch#17199).

The parent has run a parallel region before. In the control the child is told to use one thread, which needs no pool.
Seen: the child has one thread, in a futex wait; gdb has gomp_team_barrier_wait_end and gomp_team_end in torch's
libgomp.so.1 right under at::TensorIteratorBase::for_each: GOMP_parallel has left the stack by a tail call. The parent
is in wait4.
"""

import multiprocessing
import os
import signal
import sys

from stage import say_ready

EXPECT = {
    "kind": "deadlock-fork",
    "status": "established",
    "pid_role": "worker",
    "thread": "MainThread",
    "python_function": "score_rows",
    "python_line_text": "return rows.sqrt().sum()",
    "facts": ["libgomp"],
}
CONTROL = {"kind": "progressing"}
NEEDS = ["torch"]
LIMIT_S = 110


def score_rows(rows):
    return rows.sqrt().sum()


def run_child(rows, control):
    import torch

    signal.alarm(LIMIT_S)  # fork clears alarms
    if control:
        torch.set_num_threads(1)
    say_ready(pid=os.getpid())
    while True:
        print("score", float(score_rows(rows)), flush=True)


def train(control):
    import torch

    signal.alarm(LIMIT_S)
    torch.set_num_threads(4)
    rows = torch.ones(4_000_000)
    print("score", float(score_rows(rows)), flush=True)
    worker = multiprocessing.get_context("fork").Process(target=run_child, args=(rows, control))
    worker.start()
    worker.join()


if __name__ == "__main__":
    train(control="--control" in sys.argv)
