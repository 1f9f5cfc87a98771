"""A C call spins with the GIL held; the other Python thread cannot run.

PyDLL does not release the GIL. The control makes the same call through CDLL, which releases the GIL. Seen: the main
thread in state R, gdb has zoo_spin on it and take_gil on "reporter", which prints no more. What
"reporter" prints in the control is told, and is no progress of the main thread.
"""

import ctypes
import os
import signal
import sys
import threading
import time

from stage import say_ready

EXPECT = {
    "kind": "busy-native",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "run_decoder",
    "python_line_text": "library.zoo_spin(0)",
    "facts": ["GIL", "zoo_spin"],
}
CONTROL = {"kind": "busy-native"}
BUILD = "native_waits.c"
LIMIT_S = 110

library = (ctypes.CDLL if "--control" in sys.argv else ctypes.PyDLL)(os.environ["ZOO_LIB"])
library.zoo_spin.argtypes = library.zoo_sleep.argtypes = [ctypes.c_uint64]
reported = threading.Event()


def report():
    while True:
        print("alive", flush=True)
        reported.set()
        time.sleep(0.05)


def run_decoder():
    library.zoo_spin(0)


signal.alarm(LIMIT_S)
threading.Thread(target=report, name="reporter", daemon=True).start()
reported.wait()
say_ready()
run_decoder()
