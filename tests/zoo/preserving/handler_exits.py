"""A handler calls _exit(42).
No signal ended the process: the exit status is the handler's."""

import ctypes
import os
import signal

BARE = {"exit": 42}
BUILD = "handlers.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])

print("started", flush=True)
library.install(signal.SIGSEGV, b"give_up_by_exiting", 0)
library.read_word(None)
print("still there")
