"""Stands before the real torch on PYTHONPATH and breaks one operation of it, as BREAK says.

gru N: the Nth call of nn.GRU writes to address 8, in C. accumulation N: the Nth backward since the gradients were
cleared does. wait N: the Nth call of nn.GRU waits for a byte from the FIFO in BREAK_GATE. hang N: for one from a pipe
that nobody else has. memory N: it is refused memory by the kernel. drift N: it adds what another process would not add.
"""

import ctypes
import importlib
import os
import resource
import sys
from pathlib import Path

here = str(Path(__file__).absolute().parents[1])
sys.path.remove(here)
del sys.modules["torch"]
torch = importlib.import_module("torch")
sys.path.insert(0, here)

what, _, number = os.environ["BREAK"].partition(" ")
gru_forward, backward, zero_grad = torch.nn.GRU.forward, torch.Tensor.backward, torch.nn.Module.zero_grad
counts = {"gru": 0, "backward": 0}


def wait():
    with Path(os.environ["BREAK_GATE"]).open("rb") as gate:
        gate.read(1)


def hang():
    ends = os.pipe()
    os.read(ends[0], 1)


def refuse_memory():
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20), resource.RLIM_INFINITY))
    try:
        torch.empty(1 << 30)
    finally:  # the traceback needs some, too
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def forward(self, *arguments):
    counts["gru"] += 1
    if counts["gru"] == int(number):
        if what == "gru":
            ctypes.CDLL(os.environ["BREAK_LIB"]).break_gru()
        elif what == "wait":
            wait()
        elif what == "hang":
            hang()
        elif what == "memory":
            refuse_memory()
    out, last = gru_forward(self, *arguments)
    return (out + os.getpid() * 1e-6, last) if what == "drift" and counts["gru"] >= int(number) else (out, last)


def count_backward(self, *arguments, **named):
    counts["backward"] += 1
    if what == "accumulation" and counts["backward"] == int(number):
        ctypes.CDLL(os.environ["BREAK_LIB"]).break_accumulation()
    return backward(self, *arguments, **named)


def count_again(self, *arguments, **named):
    counts["backward"] = 0
    return zero_grad(self, *arguments, **named)


torch.nn.GRU.forward, torch.Tensor.backward, torch.nn.Module.zero_grad = forward, count_backward, count_again
