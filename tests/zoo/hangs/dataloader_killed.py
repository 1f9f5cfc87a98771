"""A worker of a real torch DataLoader is killed while it sends a batch; the loop swallows the error and asks for more.

torch's SIGCHLD handler raises RuntimeError in the middle of the step, where it reads like one bad batch. The next
next() finds half a message in the pipe and reads for the rest of it: the only writer left is the process itself. A
worker killed before it sends is no hang: torch goes on with the others. In the control nobody is killed. Seen: main
thread in read (anon_pipe_read) under Connection._recv for 12 s; ps has the worker as a zombie.
"""

import fcntl
import os
import signal
import sys
import termios
import time

from stage import say_ready

EXPECT = {
    "kind": "blocked-child",
    "weaker": ["blocked-io"],
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "train_epoch",
    "python_line_text": "batch = next(batches)",
    "facts": ["zombie"],
}
CONTROL = {"kind": "progressing", "weaker": ["waiting"]}
NEEDS = ["torch"]
LIMIT_S = 110


class Recordings:
    def __len__(self):
        return 10_000

    def __getitem__(self, number):
        return bytes(1_000_000)


def start_worker(number):
    signal.alarm(LIMIT_S)  # fork clears alarms


def wait_until_sending(pipe):
    while int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder) < 4096:
        time.sleep(0.01)


def train_step(batches, broken):
    wait_until_sending(batches._worker_result_queue._reader)
    if broken:
        os.kill(batches._workers[0].pid, signal.SIGKILL)
    time.sleep(0.05)


def train_epoch(broken):
    from torch.utils.data import DataLoader

    loader = DataLoader(Recordings(), batch_size=2, num_workers=1, worker_init_fn=start_worker, collate_fn=list)
    batches = iter(loader)
    while True:
        batch = next(batches)
        try:
            train_step(batches, broken)
            print("trained on", len(batch), flush=True)
        except RuntimeError as error:
            print("skipped a batch:", error, flush=True)
        say_ready(facts=[str(batches._workers[0].pid)] if broken else [])


if __name__ == "__main__":
    signal.alarm(LIMIT_S)
    train_epoch(broken="--control" not in sys.argv)
