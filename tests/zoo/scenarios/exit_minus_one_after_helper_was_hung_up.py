"""Near-miss: a program ends a helper of its own with SIGHUP and then leaves with sys.exit(-1), so with status 255.
subprocess writes a death by SIGHUP as -1, too: of all programs that leave so hardly one passes it on."""

import signal
import subprocess
import sys

EXPECT = {
    "kind": "exit-nonzero",
    "status": "established",
    "exit": 255,
    "signal": None,
    "role": "main",
    "headline": ["exit status 255"],
}
CONTROL = {"kind": "clean", "exit": 0}

if "--control" not in sys.argv:
    helper = subprocess.Popen(["sleep", "100"])
    helper.send_signal(signal.SIGHUP)
    helper.wait()
    sys.exit(-1)
