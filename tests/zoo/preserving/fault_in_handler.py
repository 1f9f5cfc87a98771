"""A handler reads address 0 itself.
SIGSEGV is blocked while its handler runs; the kernel then forces the default: SIGSEGV."""

import ctypes
import os
import signal

BARE = {"exit": 139}
BUILD = "handlers.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])

print("started", flush=True)
library.install(signal.SIGSEGV, b"fault_again", 0)
library.read_word(None)
print("still there")
