"""An endless Python loop of many lines; what it printed before lies in the buffer of a stdout that is a file.

The places form a ring, so "settled" is never reached: lines and locals change with every look, no integer moves. The
control walks the same ring a bounded number of rounds: its `step` only rises. Seen: state R, 0 bytes in the file;
four dumps with locals: other lines, no integer at all; control: step 0, 1, 2, 4.
"""

import signal
import sys

from stage import say_ready

EXPECT = {
    "kind": "busy-python",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "settle",
    "python_line_text": None,
    "facts": ["settle"],
    "unflushed": "epoch 1: 1024 clusters\ntolerance 0.001, settling\n",
}
CONTROL = {
    "kind": "progressing",
    "status": "supported",
    "rising_local": "step",
    "unflushed": "epoch 1: 1024 clusters\ntolerance 0.001, settling\n",
}
LIMIT_S = 110

ring = {"start": "merge", "merge": "split", "split": "swap", "swap": "merge"}


def settle():
    place = "start"
    seen = []
    say_ready()
    while place != "settled":
        seen.append(place)
        if len(seen) > 3:
            seen.clear()
        if place == "split":
            place = "swap"
        else:
            place = ring[place]


def settle_in_rounds(rounds):
    place = "start"
    say_ready()
    for step in range(rounds):
        for _ in ring_for_a_while():
            place = ring[place]
        if step == rounds - 1:
            place = "settled"


def ring_for_a_while():
    return [*ring] * 1_000_000


signal.alarm(LIMIT_S)
print("epoch 1: 1024 clusters")
print("tolerance 0.001, settling")
if "--control" in sys.argv:
    settle_in_rounds(100_000)
else:
    settle()
