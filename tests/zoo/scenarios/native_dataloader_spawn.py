"""A worker of a torch DataLoader, started by spawn, reads address 0 in __getitem__.
torch installs handlers of its own in the worker; the link stands before them and sees the whole stack."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 1,
    "signal": "SIGSEGV",
    "role": "worker",
    "user_function": "__getitem__",
    "component": "native_faults",
    "component_function": "zoo_read",
    "faulting_image": "native_faults",
    "fault": ["read", "null"],
    "headline": ["native_faults", "__getitem__"],
}
SHIM = {
    "because": "torch's handlers of the worker replace ours; what is left is its wait status and the kernel's line",
    "user_function": None,
    "component": ...,
    "component_function": ...,
    "faulting_image": ...,
    "fault": ...,
    "headline": ["worker process"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"
NEEDS = ["torch"]


class Sentences:
    def __init__(self, broken):
        self.broken = broken

    def __len__(self):
        return 8

    def __getitem__(self, number):
        library = ctypes.CDLL(os.environ["ZOO_LIB"])
        token = ctypes.c_long(number)
        return library.zoo_read(None if self.broken and number == 3 else ctypes.byref(token))


def train_epoch(broken):
    from torch.utils.data import DataLoader

    for batch in DataLoader(Sentences(broken), batch_size=2, num_workers=2, multiprocessing_context="spawn"):
        print("batch", batch.tolist())


if __name__ == "__main__":
    train_epoch(broken="--control" not in sys.argv)
