"""Near-miss: a program prints the sentence with which pytest-xdist tells of a lost worker, a probe of its own
crashes and is got over, and it leaves with 3. Who is no pytest does not say that of itself."""

import subprocess
import sys

EXPECT = {
    "kind": "exit-nonzero",
    "status": "established",
    "exit": 3,
    "signal": None,
    "role": "main",
    "headline": ["exit status 3"],
}
CONTROL = {"kind": "clean", "exit": 0}

if "--control" not in sys.argv:
    print("worker 'gw1' crashed while running tests/test_a.py::test_b", flush=True)
    subprocess.run([sys.executable, "-c", "import os; os.abort()"])
    subprocess.run(["true"])
    sys.exit(3)
