"""A worker of a real torch DataLoader sleeps in __getitem__; the main thread waits for its batch.

In the control the items are only slow. Seen: the worker is in clock_nanosleep, py-spy has it in fetch_image; main
process and the other worker in poll, on their queues.
"""

import os
import signal
import sys
import time

from stage import say_ready

EXPECT = {
    "kind": "blocked-child",
    "status": "hypothesis",
    "pid_role": "worker",
    "thread": "MainThread",
    "python_function": "fetch_image",
    "python_line_text": "time.sleep(LIMIT_S)",
    "facts": ["fetch_image"],
}
CONTROL = {"kind": "progressing"}
NEEDS = ["torch"]
LIMIT_S = 110


def fetch_image():
    time.sleep(LIMIT_S)


class Images:
    def __init__(self, broken):
        self.broken = broken

    def __len__(self):
        return 10_000

    def __getitem__(self, number):
        if number == 9:
            say_ready(pid=os.getpid())
            if self.broken:
                fetch_image()
        time.sleep(0.05)
        return number


def start_worker(number):
    signal.alarm(LIMIT_S)  # fork clears alarms


def train_epoch(broken):
    from torch.utils.data import DataLoader

    for batch in DataLoader(Images(broken), batch_size=2, num_workers=2, worker_init_fn=start_worker):
        print("batch", batch.tolist(), flush=True)


if __name__ == "__main__":
    signal.alarm(LIMIT_S)
    train_epoch(broken="--control" not in sys.argv)
