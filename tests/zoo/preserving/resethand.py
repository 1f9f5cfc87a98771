"""A handler with SA_RESETHAND recovers once; the second fault meets the default.
The kernel resets the disposition before it calls the handler: the second SIGSEGV is fatal."""

import ctypes
import os
import signal

BARE = {"exit": 139}
BUILD = "handlers.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
SA_RESETHAND = 0x80000000 - (1 << 32)


def describe(signo):
    text = ctypes.create_string_buffer(200)
    library.describe(signo, text, len(text))
    return text.value.decode()


library.install_jump_back(signal.SIGSEGV, SA_RESETHAND)
print("before", describe(signal.SIGSEGV))
print("recovered", library.recover_many(None, 1, 1))
print("after", describe(signal.SIGSEGV), flush=True)
print("recovered", library.recover_many(None, 1, 1))
