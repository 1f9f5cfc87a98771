"""A handler without SA_NODEFER leaves by siglongjmp, which restores the mask; a thread does the same.
sigsetjmp saved the mask, so SIGSEGV is deliverable again after each of the 250 jumps."""

import ctypes
import os
import signal
import threading

BARE = {"exit": 0}
BUILD = "handlers.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])


def recover():
    print(threading.current_thread().name, library.recover_many(None, 250, 1), flush=True)


library.install_jump_back(signal.SIGSEGV, 0)
recover()
thread = threading.Thread(target=recover, name="second thread")
thread.start()
thread.join()
