"""The two-tower incident: real torch and faiss, each with an LLVM runtime of its own (tests/builders/two_runtimes.py).
faiss first: its copy is registered when torch's initialises, which prints "OMP: Error #15" and aborts.
Control: the same environment, torch first. Its copy is RTLD_GLOBAL, so it serves faiss as well: clean.

Starts itself again in the environment that it makes in TMPDIR."""

import os
import sys
import tempfile
from pathlib import Path

EXPECT = {
    "kind": "duplicate-openmp",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "train_step",
    "component": "libgomp.so.1",
    "headline": ["torch", "faiss"],
}
CONTROL = {"kind": "clean", "exit": 0}
NEEDS = ["torch", "faiss"]
NEEDS_FILES = ["/usr/lib/llvm-14/lib/libomp.so.5"]


def enter_environment():
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from tests.builders.two_runtimes import make_environment

    python = make_environment(Path(tempfile.mkdtemp()) / "venv").python
    variables = {**os.environ, "OMP_NUM_THREADS": "2"}
    os.execve(python, [str(python), __file__, "--made", *sys.argv[1:]], variables)


def mine_hard_negatives():
    import faiss
    import numpy

    vectors = numpy.random.default_rng(1).random((2000, 64), dtype="float32")
    index = faiss.IndexFlatIP(64)
    index.add(vectors)
    print("mined", index.search(vectors[:200], 10)[1].shape)


def train_step():
    import torch

    gru = torch.nn.GRU(64, 32, batch_first=True, bidirectional=True)
    gru(torch.randn(16, 50, 64))[0].square().mean().backward()
    print("trained")


if "--made" not in sys.argv:
    enter_environment()
for work in (train_step, mine_hard_negatives) if "--control" in sys.argv else (mine_hard_negatives, train_step):
    work()
