"""A handler without SA_ONSTACK uses 200 kB of stack, opens the page and returns.
It runs on the 8 MiB of the main thread; on an alternate stack it would overflow."""

import ctypes
import os

BARE = {"exit": 0}
BUILD = "handlers.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])

print("opened", library.touch_closed_page(1, 20))
