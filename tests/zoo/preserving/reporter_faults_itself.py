"""faulthandler, which the user asked for, reports the abort of a child whose stack is damaged.
From 3.14 on it walks that stack, and faults itself: the child ends as it does bare, whichever signal that is."""

import ctypes
import os
import signal

BARE = {"exit": 0}
BUILD = "../scenarios/memory_stack_smash.c"
BUILD_FLAGS = ["-fstack-protector-all"]
VERSIONS = ["3.13", "3.13t", "3.14", "3.14t", "3.15"]

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.copy_row.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
pid = os.fork()
if pid == 0:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # addresses differ in every run
    library.copy_row(b"x" * 64, 64)
    os._exit(0)
print(signal.Signals(os.WTERMSIG(os.waitpid(pid, 0)[1])).name)
