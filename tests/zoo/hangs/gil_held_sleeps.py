"""A C call sleeps with the GIL held; the other Python thread cannot run.

PyDLL does not release the GIL. Nobody waits in a ring and a timer would end it, so it is "waiting", with the holder
of the GIL named. The control makes the same call through CDLL, which releases the GIL. Seen: gdb has clock_nanosleep
under zoo_sleep on the main thread and take_gil on "reporter", which prints no more. What
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
    "kind": "waiting",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "pause_decoder",
    "python_line_text": "library.zoo_sleep(LIMIT_S * 1000)",
    "facts": ["GIL", "zoo_sleep"],
}
CONTROL = {"kind": "waiting"}
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


def pause_decoder():
    library.zoo_sleep(LIMIT_S * 1000)


signal.alarm(LIMIT_S)
threading.Thread(target=report, name="reporter", daemon=True).start()
reported.wait()
say_ready()
pause_decoder()
