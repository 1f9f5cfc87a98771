"""A handler with SA_NODEFER leaves by siglongjmp, 250 times at one instruction and one address.
Each jump is a recovery; the mask is not restored by it, so a deferred signal would kill at the second fault."""

import ctypes
import os
import signal
import threading

BARE = {"exit": 0}
BUILD = "handlers.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
SA_NODEFER = 0x40000000


def recover():
    print(threading.current_thread().name, library.recover_many(None, 250, 0), flush=True)


library.install_jump_back(signal.SIGSEGV, SA_NODEFER)
recover()
thread = threading.Thread(target=recover, name="second thread")
thread.start()
thread.join()
