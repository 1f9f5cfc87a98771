"""Near-miss: a probe segfaults below a shell, which says so, goes on with another program and leaves with 3.
The shell's notice is of a death that it got over: 3 is a status of its own, for a reason of its own."""

import ctypes
import sys

EXPECT = {
    "kind": "exit-nonzero",
    "status": "established",
    "exit": 3,
    "signal": None,
    "role": "main",
    "headline": ["exit status 3"],
    "against": ["SIGSEGV"],
}
CONTROL = {"kind": "clean", "exit": 0}
COMMAND = ["bash", "-c", "{python} {file} {control}; {python} -c 'print(1)'; test -n '{control}' || exit 3"]

if "--control" not in sys.argv:
    ctypes.string_at(0)
