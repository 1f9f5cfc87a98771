"""Near-miss: a healthy program prints "Killed" and a shell's notice about some other process.
The exit status is 0: nothing in this run was killed."""

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


def replay_old_log(lines):
    for line in lines:
        print(line, file=sys.stderr)


replay_old_log(
    ["step 100"]
    if "--control" in sys.argv
    else ["Killed", "bash: line 1:   123 Killed                  python train.py"]
)
