"""The program asks what is installed for the signals that end it politely, sets handlers, and takes them away again.
Nobody has installed anything, so each is SIG_DFL (SIGINT has Python's handler); flags and mask are its own."""

import ctypes
import os
import signal

BARE = {"exit": 0}
BUILD = "handlers.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
SA_NODEFER, SA_RESTART, SA_RESETHAND = 0x40000000, 0x10000000, 0x80000000
NAMES = ("SIGTERM", "SIGHUP", "SIGXCPU", "SIGINT")


def describe(signo):
    text = ctypes.create_string_buffer(200)
    library.describe(signo, text, len(text))
    return text.value.decode()


def show(title):
    for name in NAMES:
        seen = signal.getsignal(signal.Signals[name])
        print(title, name, describe(signal.Signals[name]), getattr(seen, "__name__", seen))


def note(signo, frame):
    print("got", signal.Signals(signo).name, flush=True)


show("at start")
for name in NAMES:
    library.install_jump_back(signal.Signals[name], SA_NODEFER | SA_RESTART)
show("with handlers")
for name in NAMES:
    print(name, signal.signal(signal.Signals[name], note) in (signal.SIG_DFL, None, signal.default_int_handler))
    os.kill(os.getpid(), signal.Signals[name])
show("with Python's")
for name in NAMES:
    signal.signal(signal.Signals[name], signal.SIG_DFL)
show("back at the default")
for name in NAMES:
    signal.signal(signal.Signals[name], signal.SIG_IGN)
    os.kill(os.getpid(), signal.Signals[name])
show("ignored")
