"""Near-miss: a probe in a process of its own segfaults, as such probes may; later a ValueError ends the command.
The probe's death was collected and handled; the command ended of its own exception."""

import subprocess
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "train_step",
    "headline": ["ValueError"],
    "against": ["SIGSEGV"],
}
CONTROL = {"kind": "clean", "exit": 0}
PROBE = "import ctypes; ctypes.string_at(0)"


def has_fast_path():
    return subprocess.run([sys.executable, "-c", PROBE], stderr=subprocess.DEVNULL).returncode == 0


def train_step(fast):
    if not fast:
        raise ValueError("learning rate must not be negative")


train_step(True if "--control" in sys.argv else has_fast_path())
