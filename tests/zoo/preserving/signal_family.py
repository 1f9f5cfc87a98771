"""signal, ssignal, sysv_signal, sigset, sigignore and siginterrupt are called and the result asked for.
Each has its own flags (sysv_signal: SA_RESETHAND and SA_NODEFER) and returns what was there before."""

import ctypes
import os
import signal

BARE = {"exit": 0}
BUILD = "handlers.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])


def describe(signo):
    text = ctypes.create_string_buffer(200)
    library.describe(signo, text, len(text))
    return text.value.decode()


text = ctypes.create_string_buffer(2000)
library.walk_signal_family(text, len(text))
print(text.value.decode(), end="")
library.install_jump_back(signal.SIGFPE, 0)
for interrupts in (0, 1):
    print("siginterrupt", library.change_interruption(signal.SIGFPE, interrupts), describe(signal.SIGFPE))
print("sigignore", library.ignore_signal(signal.SIGFPE), describe(signal.SIGFPE))
