"""SIGSEGV is blocked when a real fault comes.
The kernel cannot deliver it and must not ignore it: it forces the default, and no handler runs at all."""

import ctypes
import os
import signal

BARE = {"exit": 139}
BUILD = "handlers.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])

print("started", flush=True)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGSEGV])
library.read_word(None)
print("still there")
