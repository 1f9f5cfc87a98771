"""A native thread reads address 0; 100 ms later the main thread would end with 0.
The fault ends the process at once: whoever holds the faulting thread must hold the main thread too."""

import ctypes
import os
import time

BARE = {"exit": 139}
BUILD = "handlers.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])

print("started", flush=True)
library.start_faulting_thread(), time.sleep(0.1)  # one line, so that a dump shows the same one at any moment
print("finished")
