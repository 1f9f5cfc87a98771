"""A ring across two copies of one OpenMP runtime: a parallel region of the first copy takes a lock of the second.

One thread gets the lock and goes to the first copy's barrier, where it waits for the other, which waits for the lock:
neither runtime knows of the other's threads. KMP_DUPLICATE_LIB_OK lets the second copy start, as it did in the
incident. The control's region asks the second copy for a number only. Seen: the worker sleeps in a futex in copy B,
called from copy A with nothing between them; the main thread in the barrier of copy A.
"""

import ctypes
import os
import shutil
import signal
import sys
import threading
import time

from stage import say_ready

EXPECT = {
    "kind": "deadlock-openmp",
    "status": "established",
    "pid_role": "main",
    "thread": None,
    "python_function": None,
    "python_line_text": None,
    "facts": ["libomp_first.so calls straight into", "libomp_second.so"],
}
CONTROL = {"kind": "progressing"}
RUNTIMES = ["/usr/lib/llvm-14/lib/libomp.so.5", "/usr/lib/x86_64-linux-gnu/libomp.so.5"]
LIMIT_S = 110


def load_copies():
    source = next((path for path in RUNTIMES if os.path.exists(path)), None)
    if source is None:
        sys.stderr.write("needs LLVM's OpenMP runtime (Debian libomp5-14)\n")
        sys.exit(77)
    # KMP_LOCK_KIND: who waits for a lock sleeps. Read by a runtime when it starts, so it must be in the C environment.
    os.environ.update(KMP_DUPLICATE_LIB_OK="TRUE", KMP_LOCK_KIND="futex", OMP_NUM_THREADS="2", KMP_BLOCKTIME="0")
    copies = []
    for name in ("first", "second"):
        path = os.path.join(os.environ["TMPDIR"], f"libomp_{name}.so")
        shutil.copy(source, path)
        copies.append(ctypes.CDLL(path))
        copies[-1].omp_get_max_threads()
    return copies


def wait_until_stuck(before):
    """All threads that came with the region are asleep, twice in a row."""
    asleep = 0
    while asleep < 10:
        tids = [tid for tid in os.listdir("/proc/self/task") if int(tid) != threading.get_native_id()]
        states = [open(f"/proc/self/task/{tid}/stat").read().rpartition(")")[2].split()[0] for tid in tids]
        asleep = asleep + 1 if len(tids) > before and set(states) == {"S"} else 0
        time.sleep(0.02)
    say_ready()
    time.sleep(LIMIT_S)


def train(first, second, function):
    lock = ctypes.c_void_p()
    second.omp_init_lock(ctypes.byref(lock))
    first.GOMP_parallel(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(lock), 2, 0)


signal.alarm(LIMIT_S)
first, second = load_copies()
if "--control" in sys.argv:
    say_ready()
    while True:
        train(first, second, second.omp_get_max_threads)
        os.write(1, b"a step\n")
        time.sleep(0.02)
threading.Thread(target=wait_until_stuck, args=(len(os.listdir("/proc/self/task")),), daemon=True).start()
train(first, second, second.omp_set_lock)
