"""A vfork child, which shares our memory, sets every signal to its default and runs /bin/true.
Its dispositions are its own: our handler still recovers, and without it a fault is still fatal."""

import ctypes
import os
import signal

BARE = {"exit": 139}
BUILD = "handlers.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
SA_NODEFER = 0x40000000

library.install_jump_back(signal.SIGSEGV, SA_NODEFER)
print("child ended with", library.run_vfork_child_with_default_signals())
print("recovered", library.recover_many(None, 3, 0), flush=True)
signal.signal(signal.SIGSEGV, signal.SIG_DFL)
library.read_word(None)
