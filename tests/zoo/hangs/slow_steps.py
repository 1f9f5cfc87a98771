"""Not stuck, only slow: per-token Python loops, long steps, a line every five steps, stdout is a file (INCIDENTS B).

`step` in train() rises, `token` in encode() does not: it starts again with every row. ZOO_STEP_S and ZOO_LIMIT_S
stretch it to the real thing. The control flushes a line per step. Seen: state R, 0 bytes in the file; four dumps over
5 s: step 0, 0, 1, 1, token up and down.
"""

import json
import os
import signal
import sys
import time

EXPECT = {
    "kind": "progressing",
    "status": "supported",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "encode",
    "python_line_text": None,
    "rising_local": "step",
    "unflushed": "training on 2 devices\n",
    "facts": ["step"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = int(os.environ.get("ZOO_LIMIT_S", "110"))
STEP_S = float(os.environ.get("ZOO_STEP_S", "2"))


def say_ready(**truth):
    path = os.environ["ZOO_READY"]
    with open(path + ".part", "w") as file:
        json.dump(truth, file)
    os.replace(path + ".part", path)


def encode(row):
    total = 0.0
    for token in row:
        value = (token * 31 + 7) % 1009
        if value % 2:
            total += value / 1009
        else:
            total -= value / 1009
    return total


def count_rows(row):
    """How many rows make a step of STEP_S on this machine."""
    begin = time.perf_counter()
    for _ in range(20):
        encode(row)
    return max(1, round(STEP_S * 20 / (time.perf_counter() - begin)))


def train(control):
    row = list(range(1009)) * 20
    rows = [row] * count_rows(row)
    losses = []
    say_ready()
    for step in range(1_000_000):
        for row in rows:
            losses.append(encode(row))
        losses.clear()
        if control:
            print("step", step, flush=True)
        elif step and step % 5 == 0:
            print("step", step)


signal.alarm(LIMIT_S)
print("training on 2 devices")
train(control="--control" in sys.argv)
