"""Leaves with sys.exit(3) while an unfinished progress bar (22 %) is the last text on stderr.
The bar is redrawn with \\r and has no newline: the last real line is "epoch 1 done", the 3 a choice."""

import sys

EXPECT = {
    "kind": "exit-nonzero",
    "status": "established",
    "exit": 3,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": ["3"],
}
CONTROL = {"kind": "clean", "exit": 0}


def draw_bar(epoch, last_percent):
    for percent in range(0, last_percent + 1, 2):
        sys.stderr.write("\repoch {}: {:3d}%|{:<10}|".format(epoch, percent, "#" * (percent // 10)))
        sys.stderr.flush()


draw_bar(1, 100)
sys.stderr.write("\nepoch 1 done\n")
if "--control" in sys.argv:
    draw_bar(2, 100)
    sys.stderr.write("\nepoch 2 done\n")
else:
    draw_bar(2, 22)
    sys.exit(3)
