"""The program asks what is installed for the signals of crashes, before and after it changes them.
Nobody has installed anything, so each is SIG_DFL; afterwards it sees what it has set itself."""

import ctypes
import faulthandler
import os
import signal

BARE = {"exit": 0}
SHIM = {
    "because": "nothing is interposed, so the program sees our handlers where faulthandler.disable() put nothing back",
    "other_lines": ["at start SIGTRAP ", "at start SIGSYS "],
}
BUILD = "handlers.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
SA_NODEFER, SA_ONSTACK = 0x40000000, 0x08000000
NAMES = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP", "SIGSYS")


def describe(signo):
    text = ctypes.create_string_buffer(200)
    library.describe(signo, text, len(text))
    return text.value.decode()


def show(title):
    for name in NAMES:
        print(title, name, describe(signal.Signals[name]))


faulthandler.disable()
show("at start")
for name in NAMES:
    library.install_jump_back(signal.Signals[name], SA_NODEFER | SA_ONSTACK)
show("with handlers")
for name in NAMES:
    signal.signal(signal.Signals[name], signal.SIG_IGN)
show("ignored")
print("blocked", sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
