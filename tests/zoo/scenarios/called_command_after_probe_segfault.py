"""Near-miss: a probe segfaults, which is handled; later another command fails with status 1 and is checked.
CalledProcessError names its command and its status: the one that failed so is the one that is meant."""

import subprocess
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "child",
    "user_function": "<module>",
    "headline": ["ValueError: stage 2: bad row"],
}
CONTROL = {"kind": "clean", "exit": 0}
PROBE = "import ctypes; ctypes.string_at(0)"
STAGE = "raise ValueError('stage 2: bad row')"

if "--control" not in sys.argv:
    subprocess.run([sys.executable, "-c", PROBE], stderr=subprocess.DEVNULL)
    subprocess.run([sys.executable, "-c", STAGE], check=True)
