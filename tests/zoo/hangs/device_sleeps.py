"""The wait for a device that never finishes, asleep: a stub libcuda.so.1 in cuStreamSynchronize.

In the control the device is done at once, every time. Seen: gdb has poll under cuStreamSynchronize in libcuda.so.1,
with the GIL released.
"""

import ctypes
import os
import signal
import sys
import time

from stage import say_ready

EXPECT = {
    "kind": "blocked-device",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "copy_batch",
    "python_line_text": "driver.cuStreamSynchronize(None)",
    "facts": ["cuStreamSynchronize", "libcuda.so.1"],
}
CONTROL = {"kind": "progressing"}
BUILD = "libcuda_stub.c"
BUILD_FLAGS = ["-Wl,-soname,libcuda.so.1"]
BUILD_NAME = "libcuda.so.1"
LIMIT_S = 110

driver = ctypes.CDLL(os.environ["ZOO_LIB"])


def copy_batch():
    driver.cuStreamSynchronize(None)


signal.alarm(LIMIT_S)
ctypes.c_int.in_dll(driver, "zoo_device_is_done").value = "--control" in sys.argv
say_ready()
while True:
    copy_batch()
    print("step", flush=True)
    time.sleep(0.02)
