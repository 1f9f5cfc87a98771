"""os.abort(), with no message from anyone.
abort(3) raises SIGABRT; faulthandler's "Fatal Python error: Aborted" is not the text of a Py_FatalError."""

import os
import sys

EXPECT = {
    "kind": "abort",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "check_invariants",
    "headline": ["check_invariants"],
}
CONTROL = {"kind": "clean", "exit": 0}


def check_invariants(rows, expected):
    print("rows", rows)
    if rows != expected:
        os.abort()


check_invariants(50000, expected=50000 if "--control" in sys.argv else 771115)
