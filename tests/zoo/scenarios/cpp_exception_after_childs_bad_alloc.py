"""Near-miss: a probe in a child dies of std::bad_alloc, which is handled; later the job throws a runtime_error itself.
Both lines are the C++ runtime's own, on one channel: the cause is the later one. How sure that is depends on whether
both were read at one go, when the child may still have been there: no status is expected."""

import ctypes
import os
import subprocess
import sys

EXPECT = {
    "kind": "cpp-exception",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "mine_hard_negatives",
    "headline": ["std::runtime_error"],
    "not_in_headline": ["std::bad_alloc", "refused"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "cpp_exception_noexcept.cpp"
PROBE = """\
import sys
sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\\n  what():  std::bad_alloc\\n")
sys.exit(6)
"""

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.read_bank.argtypes = [ctypes.c_long, ctypes.c_long]


def mine_hard_negatives(index):
    library.read_bank(index, 50000)


if "--control" not in sys.argv:
    subprocess.run([sys.executable, "-c", PROBE], check=False)
mine_hard_negatives(100 if "--control" in sys.argv else 50001)
print("mined")
