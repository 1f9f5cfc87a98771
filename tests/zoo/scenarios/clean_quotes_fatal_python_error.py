"""Near-miss: a healthy program quotes a whole faulthandler dump, "Fatal Python error" included.
The exit status is 0: the process that printed such a dump in earnest would have died of the signal."""

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

OLD_DUMP = """Fatal Python error: Segmentation fault

Current thread 0x00007f2f3cc6ab80 (most recent call first):
  File "train.py", line 11 in mine_hard_negatives
  File "train.py", line 15 in <module>
"""


def compare_with_old_run():
    sys.stderr.write("no old run\n" if "--control" in sys.argv else OLD_DUMP)


compare_with_old_run()
