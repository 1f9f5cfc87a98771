"""A thread reads an unmapped page; 50 ms later its sibling maps that very page.
The fault ends the process at once: while somebody looks, it must not heal."""

import ctypes
import os

BARE = {"exit": 139}
BUILD = "handlers.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])

print("started", flush=True)
library.fault_while_sibling_heals()
print("healed")
