"""With c10's handler installed a native thread faults; 100 ms later the main thread would end with 0.
c10 prints all stacks within milliseconds and the fault ends the process: nobody may hold c10 up and let main go on."""

import os
import signal
import subprocess
import sys
import time

BARE = {"exit": 0}
BUILD = "handlers.c"
NEEDS = ["torch"]


def fault_beside_main():
    import ctypes

    import torch

    library = ctypes.CDLL(os.environ["ZOO_LIB"])
    torch._C._set_print_stack_traces_on_fatal_signal(True)
    library.start_faulting_thread()
    time.sleep(0.1)
    os._exit(0)


if "--child" in sys.argv:
    fault_beside_main()
else:
    child = subprocess.run([sys.executable, __file__, "--child"], stderr=subprocess.DEVNULL)
    print("ended with SIGSEGV", child.returncode == -signal.SIGSEGV)
