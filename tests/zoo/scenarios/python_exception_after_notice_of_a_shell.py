"""Near-miss: a shell that the command started says that a probe below it segfaulted; later a ValueError ends it all.
A notice that names a process which was seen to die so is no word about the end of the command."""

import subprocess
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "train_step",
    "headline": ["ValueError: bad row 7"],
    "against": ["SIGSEGV"],
}
CONTROL = {"kind": "clean", "exit": 0}
PROBE = "import ctypes; ctypes.string_at(0)"


def train_step(fast):
    if not fast:
        raise ValueError("bad row 7")


def has_fast_path():
    probe = ["bash", "-c", '"$0" -c "$1"; echo "status $?" >&2; exit 4', sys.executable, PROBE]
    return subprocess.run(probe).returncode == 0


train_step("--control" in sys.argv or has_fast_path())
