"""A handler forks, waits for the child and jumps back.
The child leaves with 7, the parent goes on: three times."""

import ctypes
import os
import signal

BARE = {"exit": 0}
BUILD = "handlers.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])

library.install(signal.SIGSEGV, b"fork_and_jump_back", 0)
print("recovered", library.recover_many(None, 3, 1), "child", library.get_child_status())
