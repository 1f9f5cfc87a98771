"""A handler with SA_ONSTACK on an alternate stack of the program's own, 8 kB.
It must run on that stack, and there is little room for anybody who comes first."""

import ctypes
import os
import threading

BARE = {"exit": 0}
BUILD = "handlers.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])


def recover():
    print(threading.current_thread().name, library.recover_on_small_stack(50), flush=True)


recover()
thread = threading.Thread(target=recover, name="second thread")
thread.start()
thread.join()
