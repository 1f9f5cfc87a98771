"""A worker of a real torch DataLoader is ended by SIGKILL in __getitem__; the parent raises RuntimeError.
The worker cannot print; torch's SIGCHLD handler reads the status: "killed by signal: Killed"."""

import os
import signal
import sys

EXPECT = {
    "kind": "killed",
    "status": "established",
    "exit": 1,
    "signal": "SIGKILL",
    "role": "worker",
    "user_function": None,
    "headline": ["SIGKILL"],
}
CONTROL = {"kind": "clean", "exit": 0}
NEEDS = ["torch"]


class Sentences:
    def __init__(self, broken):
        self.broken = broken

    def __len__(self):
        return 8

    def __getitem__(self, number):
        if self.broken and number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return number


def train_epoch(broken):
    from torch.utils.data import DataLoader

    for batch in DataLoader(Sentences(broken), batch_size=2, num_workers=2):
        print("batch", batch.tolist())


if __name__ == "__main__":
    train_epoch(broken="--control" not in sys.argv)
