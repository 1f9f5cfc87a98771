"""Not stuck, only slow: per-token Python loops, long steps, a line every five steps, stdout is a file (INCIDENTS B).

Tensors are taken apart with .tolist() and .item(), as there. `step` in train() rises, `number` too until the step is
done, `token` in encode() does not: it starts again with every row. ZOO_STEP_S and ZOO_LIMIT_S stretch it to the real
thing. The control flushes a line per step.
Seen: state R, 0 bytes in the file; four dumps over 5 s: step 0, 0, 1, 1, token up and down.
"""

import os
import signal
import sys
import time

import torch
from stage import say_ready

EXPECT = {
    "kind": "progressing",
    "status": "supported",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "encode",
    "python_line_text": None,
    "rising_local": ["step in train", "number in train"],
    "unflushed_start": "training on 2 devices\n",
}
CONTROL = {"kind": "progressing"}
NEEDS = ["torch"]
LIMIT_S = int(os.environ.get("ZOO_LIMIT_S", "110"))
STEP_S = float(os.environ.get("ZOO_STEP_S", "2"))


def encode(row, weights):
    total = 0.0
    for token in row.tolist():
        value = weights[token % 64].item()
        if value % 2:
            total += value / 1009
        else:
            total -= value / 1009
    return total


def count_rows(row, weights):
    """How many rows make a step of STEP_S on this machine."""
    begin = time.perf_counter()
    for _ in range(20):
        encode(row, weights)
    return max(1, round(STEP_S * 20 / (time.perf_counter() - begin)))


def train(control):
    torch.set_num_threads(1)
    row, weights = torch.arange(1009), torch.arange(64)
    rows = [row] * count_rows(row, weights)
    losses = []
    say_ready()
    for step in range(1_000_000):
        for number, row in enumerate(rows):
            losses.append(encode(row, weights))
        losses.clear()
        if control:
            print("step", step, flush=True)
        elif step and step % 5 == 0:
            print("step", step)


signal.alarm(LIMIT_S)
print("training on 2 devices")
train(control="--control" in sys.argv)
