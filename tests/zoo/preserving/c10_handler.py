"""c10's handler of fatal signals prints the stack of every thread; a child faults, another aborts.
c10 signals each thread with SIGUSR2, waits for its stack, and hands over to whoever was there before: faulthandler."""

import os
import re
import signal
import subprocess
import sys
import threading

BARE = {"exit": 0}
BUILD = "handlers.c"
NEEDS = ["torch"]


def die(how):
    import ctypes

    import torch

    library = ctypes.CDLL(os.environ["ZOO_LIB"])
    torch._C._set_print_stack_traces_on_fatal_signal(True)
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    if how == "SIGABRT":
        os.abort()
    library.read_word(None)


def show(said):
    """Addresses and numbers differ in every run; what the other threads do is theirs, that they are there is not."""
    first, *others = re.split(r"^SIG\w+\(\d+\), PID: \d+, Thread \d+: *\n", said, flags=re.MULTILINE)[1:]
    for line in first.partition("\n\n")[0].splitlines():
        print(re.sub(r"\(0x[0-9a-f]+ in .*\)", "", line))
    print("stacks of others", len(others))
    print("then", *re.findall("Fatal Python error: .*", said))


if len(sys.argv) > 1:
    die(sys.argv[1])
else:
    for how in ("SIGSEGV", "SIGABRT"):
        child = subprocess.run([sys.executable, __file__, how], stderr=subprocess.PIPE, text=True)
        print("ended with", signal.Signals(-child.returncode).name)
        show(child.stderr)
