"""torch is asked for a tensor of 4 PiB; the RuntimeError is not caught.
mmap refuses it at once, whatever the machine: more than there can be is memory refused, not an OOM kill."""

import sys

import torch

EXPECT = {
    "kind": "allocation-failure",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "allocate_bank",
    "headline": ["DefaultCPUAllocator"],
}
CONTROL = {"kind": "clean", "exit": 0}
NEEDS = ["torch"]


def allocate_bank(rows):
    bank = torch.empty(rows, 1 << 20, dtype=torch.uint8)
    print("bank", tuple(bank.shape))


allocate_bank(1 if "--control" in sys.argv else 1 << 32)
