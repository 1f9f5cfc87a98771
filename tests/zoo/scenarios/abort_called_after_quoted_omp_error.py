"""Near-miss: a line says "OMP: Error #15", as libomp prints it; then abort() is called by ctypes, for another reason.
The runtime that prints it in earnest calls abort() itself; here it is quoted (duplicate_openmp_real is the twin)."""

import ctypes
import sys

EXPECT = {
    "kind": "abort",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "give_up",
    "headline": ["SIGABRT", "give_up"],
}
CONTROL = {"kind": "clean", "exit": 0}
QUOTED = "OMP: Error #15: Initializing libomp.so.5, but found libiomp5.so already initialized."


def give_up():
    ctypes.CDLL(None).abort()


print(QUOTED, file=sys.stderr, flush=True)
if "--control" not in sys.argv:
    give_up()
