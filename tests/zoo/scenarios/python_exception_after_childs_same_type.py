"""Near-miss: a child's FileNotFoundError is handled; the job's own goes to a hook that prints in a form of its own.
The child's traceback stands in the output, of the same type: its message is not the job's."""

import subprocess
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": ["FileNotFoundError"],
    "not_in_headline": ["optional"],
}
CONTROL = {"kind": "clean", "exit": 0}

if "--control" not in sys.argv:
    subprocess.run([sys.executable, "-c", "raise FileNotFoundError('optional.yaml')"], check=False)
    sys.excepthook = lambda kind, value, traceback: print("ERROR", value)
    open("/nonexistent/required.yaml")
