"""A handler restores the default, raises the signal again and returns.
The signal is blocked until the handler has returned, then it is delivered: SIGSEGV."""

import ctypes
import os
import signal

BARE = {"exit": 139}
BUILD = "handlers.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])

print("started", flush=True)
library.install(signal.SIGSEGV, b"give_up_by_raising", 0)
library.read_word(None)
print("still there")
