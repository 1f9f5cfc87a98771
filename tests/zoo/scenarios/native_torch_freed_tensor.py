"""torch sums a tensor over memory that its owner has given back.
torch.from_numpy shares the memory; after munmap(2) torch's own kernel reads unmapped pages."""

import ctypes
import mmap
import sys

import numpy
import torch

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "train_step",
    "component": "libtorch",
    "component_function": None,
    "faulting_image": "libtorch",
    "fault": ["read", "unmapped"],
    "headline": ["libtorch", "train_step"],
}
CONTROL = {"kind": "clean", "exit": 0}
NEEDS = ["torch", "numpy"]


def map_rows(rows, width):
    mapping = mmap.mmap(-1, rows * width * 4)
    return numpy.frombuffer(mapping, dtype=numpy.float32).reshape(rows, width)


def give_back(rows):
    """What a C library does that frees a buffer it has lent: numpy still holds the address."""
    libc = ctypes.CDLL(None)
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    assert libc.munmap(rows.ctypes.data, rows.nbytes) == 0


def train_step(embeddings):
    print("loss", torch.from_numpy(embeddings).sum().item())


embeddings = map_rows(64, 1 << 18)
torch.set_num_threads(1)
if "--control" not in sys.argv:
    give_back(embeddings)
train_step(embeddings)
