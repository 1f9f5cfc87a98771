"""A training run that ends well, with output on both streams.
Exit status 0 and nothing else happened; the control is the same program."""

import sys

EXPECT = {
    "kind": "clean",
    "status": "established",
    "exit": 0,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": [],
}
CONTROL = {"kind": "clean", "exit": 0}

for step in range(3):
    print("step", step, "loss", 1.0 / (step + 1))
print("saved checkpoint", file=sys.stderr)
