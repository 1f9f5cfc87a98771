"""The handler of SIGSEGV runs an undefined instruction; the handler of SIGILL jumps out of both.
SIGILL is not blocked in the handler of SIGSEGV, and siglongjmp restores the mask of before: 20 recoveries."""

import ctypes
import os
import signal

BARE = {"exit": 0}
BUILD = "handlers.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])

library.install(signal.SIGSEGV, b"run_into_undefined", 0)
library.install_jump_back(signal.SIGILL, 0)
print("recovered", library.recover_many(None, 20, 1))
