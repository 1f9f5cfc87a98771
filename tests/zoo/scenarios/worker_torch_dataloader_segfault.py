"""A worker of a real torch DataLoader segfaults in __getitem__; the parent raises RuntimeError.
torch replaces faulthandler's handler in the worker by its own: one line of text and no Python stack."""

import ctypes
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 1,
    "signal": "SIGSEGV",
    "role": "worker",
    "user_function": "__getitem__",
    "headline": ["SIGSEGV"],
}
SHIM = {
    "because": "torch's handlers of the worker replace ours; what is left is its wait status and the kernel's line",
    "user_function": None,
    "headline": ["worker process"],
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
            ctypes.string_at(0)
        return number


def train_epoch(broken):
    from torch.utils.data import DataLoader

    for batch in DataLoader(Sentences(broken), batch_size=2, num_workers=2):
        print("batch", batch.tolist())


if __name__ == "__main__":
    train_epoch(broken="--control" not in sys.argv)
