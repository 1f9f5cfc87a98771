"""Near-miss: a healthy program whose log quotes "OMP: Error #15" word for word.
A marker in the output of a process that exits 0 is nothing: the runtime that really prints it aborts."""

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

OLD_LOG = "OMP: Error #15: Initializing libomp.so.5, but found libomp.so.5 already initialized."


def summarise_old_runs():
    print("yesterday's run ended with:", file=sys.stderr)
    print("no error" if "--control" in sys.argv else OLD_LOG, file=sys.stderr)


summarise_old_runs()
