"""An endless loop in native code that has released the GIL, on a thread; the main thread joins it.

The interpreter is free but has nothing to do. The control makes short calls of the same function, and the number of
the row rises. Seen: "scorer" in state R, gdb has zoo_spin under ffi_call; the main thread in a futex wait under
PyThread_acquire_lock_timed; control: row rises in each dump.
"""

import ctypes
import os
import signal
import sys
import threading

from stage import say_ready

EXPECT = {
    "kind": "busy-native",
    "pid_role": "main",
    "thread": "scorer",
    "python_function": "score",
    "python_line_text": "library.zoo_spin(0)",
    "facts": ["zoo_spin", "native_waits"],
}
CONTROL = {"kind": "progressing", "status": "supported", "rising_local": "row"}
BUILD = "native_waits.c"
LIMIT_S = 110

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_spin.argtypes = [ctypes.c_uint64]


def score():
    say_ready()
    library.zoo_spin(0)


def score_rows():
    say_ready()
    for row in range(10**9):
        library.zoo_spin(40_000_000 + row % 2)


signal.alarm(LIMIT_S)
target = score_rows if "--control" in sys.argv else score
thread = threading.Thread(target=target, name="scorer", daemon=True)
thread.start()
thread.join()
