"""The commands to supervise, as program texts for `python -c`. They measure nothing.

Where argv[1] is a descriptor, the program says there that it is ready; it then ends when its stdin does.
"""

BLOCK_BYTES = 64 * 1024
LINE = "epoch 3 step {:08d} loss 0.69314718 lr 0.00100000 grad_norm 1.41421356 tokens/s 20480\n"

WRITE_BLOCKS = """
import os
block = b"x" * {block}
for _ in range({count}):
    left = memoryview(block)
    while left:
        left = left[os.write(1, left):]
"""

PRINT_LINES = """
for step in range({count}):
    print({line!r}.format(step), end="")
"""

IDLE = """
import os, sys
os.write(int(sys.argv[1]), b"ready")
sys.stdin.read()
"""

CHATTY = f"""
import os, select, sys
os.write(int(sys.argv[1]), b"ready")
step = 0
while not select.select([0], [], [], 0.001)[0]:
    step += 1
    print({LINE!r}.format(step), end="", flush=True)
"""

# Each child is a `cat` on the same stdin: idle until it ends, then gone by itself.
MANY = """
import os, subprocess, sys
kids = [subprocess.Popen(["cat"]) for _ in range(int(sys.argv[2]))]
os.write(int(sys.argv[1]), b"ready")
sys.stdin.read()
sys.exit(any(kid.wait() for kid in kids))
"""

# The same with interpreters: a launcher and its ranks.
RANKS = MANY.replace('["cat"]', '[sys.executable, "-c", "import sys; sys.stdin.read()"]')

# argv[1] gets the time of death, argv[2] is how many bytes to write before.
DIE = f"""
import os, resource, sys, time
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.stdout.write("".join({LINE!r}.format(step) for step in range(int(sys.argv[2]) // {len(LINE.format(0))})))
sys.stdout.flush()
os.write(int(sys.argv[1]), str(time.monotonic_ns()).encode())
os.abort()
"""

# TRAP and THREADS print what one costs, wall and CPU, in microseconds; argv[1] is how many.
# Here argv[2] is the function that traps.
TRAP = """
import sys, time, wasmtime
store = wasmtime.Store()
module = wasmtime.Module(store.engine, '''(module (memory 1)
  (func (export "unreachable") unreachable)
  (func (export "read_outside") (drop (i32.load (i32.const 0x7fffffff)))))''')
function = wasmtime.Instance(store, module, []).exports(store)[sys.argv[2]]
trapped, begun, begun_cpu = 0, time.perf_counter(), time.process_time()
for _ in range(int(sys.argv[1])):
    try:
        function(store)
    except wasmtime.Trap:
        trapped += 1
assert trapped == int(sys.argv[1])
print((time.perf_counter() - begun) / trapped * 1e6, (time.process_time() - begun_cpu) / trapped * 1e6)
"""

# Native threads, argv[2] alive at once: they wait for a lock (all zero is a valid one) that opens when all are there.
# The lock is never given back, so each round needs its own.
THREADS = """
import ctypes, os, sys, time
count, alive = int(sys.argv[1]), int(sys.argv[2])
os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
libc = ctypes.PyDLL(None)
threads = (ctypes.c_ulong * alive)()
places = [ctypes.byref(threads, ctypes.sizeof(ctypes.c_ulong) * i) for i in range(alive)]
begun, begun_cpu = time.perf_counter(), time.process_time()
for _ in range(count // alive):
    gate = ctypes.create_string_buffer(64)
    libc.pthread_rwlock_wrlock(gate)
    failed = [libc.pthread_create(place, None, libc.pthread_rwlock_rdlock, gate) for place in places]
    libc.pthread_rwlock_unlock(gate)
    if any(failed):
        sys.exit("pthread_create failed")
    for thread in threads:
        libc.pthread_join(ctypes.c_ulong(thread), None)
print((time.perf_counter() - begun) / count * 1e6, (time.process_time() - begun_cpu) / count * 1e6)
"""

# For `sh -c`; $1 is how many.
FORK = "i=0; while [ $i -lt $1 ]; do /bin/true; i=$((i+1)); done"
PIPELINE = "i=0; while [ $i -lt $1 ]; do echo $i | cat >/dev/null; i=$((i+1)); done"

# Before the fault, idle: harness prepares its look in the first moments of a command, and filling more memory or
# starting more threads must not give it more time for that.
IDLE_S = 2

# argv[1] bytes, argv[2] threads. The memory is filled, so that it is resident and belongs into a core.
CRASH = f"""
import ctypes, sys, threading, time
ballast = b"x" * int(sys.argv[1])
for _ in range(int(sys.argv[2])):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
time.sleep({IDLE_S})
print(time.monotonic(), flush=True)
ctypes.string_at(0)
"""

# argv[1] bytes, until stdin is closed.
HOLD = """
import sys
ballast = b"x" * int(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""

# argv[1] threads; the time of the fault goes to argv[2], faulthandler's words to argv[3].
FAULT = f"""
import ctypes, faulthandler, os, sys, threading, time
faulthandler.enable(int(sys.argv[3]), all_threads=False)
for _ in range(int(sys.argv[1])):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
time.sleep({IDLE_S})
os.write(int(sys.argv[2]), str(time.monotonic_ns()).encode())
ctypes.string_at(0)
"""

# argv[1] times each, in turns: our list of this process with and without its OpenMP calls, threadpoolctl's list, and
# what threadpoolctl says without looking again. Prints the figures in microseconds, and what was found; then waits to
# be looked at from outside.
LIST = """
import json, os, sys, time
import torch, faiss, numpy, threadpoolctl
from harness.capture.openmp.loaded import list_loaded
kept = threadpoolctl.ThreadpoolController()
calls = (list_loaded, lambda: list_loaded(calls=False), threadpoolctl.threadpool_info, kept.info)
found, _, theirs, _ = [call() for call in calls]
figures = [[] for _ in calls]
for _ in range(int(sys.argv[1])):
    for call, row in zip(calls, figures):
        begun = time.perf_counter_ns()
        call()
        row.append((time.perf_counter_ns() - begun) / 1e3)
ours = [os.path.realpath(image.path) for image in found.images if image.defines & 3]
peer = [os.path.realpath(row["filepath"]) for row in theirs if row["user_api"] == "openmp"]
print(json.dumps([figures, sorted(ours), sorted(peer), len(found.images), len(found.calls)]), flush=True)
sys.stdin.readline()
"""

# Loads the libraries of argv[1:]; "+" before one: and initialises it. Says so, waits, then asks threadpoolctl.
LOAD = """
import ctypes, json, sys
failed, loaded = [], []
for word in sys.argv[1:]:
    try:
        loaded.append(ctypes.CDLL(word.lstrip("+")))
    except OSError as error:
        failed.append(str(error))
        continue
    if word.startswith("+"):
        loaded[-1].omp_get_max_threads()
print(json.dumps(failed), flush=True)
sys.stdin.readline()
import threadpoolctl
print(json.dumps([row["filepath"] for row in threadpoolctl.threadpool_info()]), flush=True)
sys.stdin.readline()
"""

# What makes a native library with a runtime inside.
STATIC = """
extern int omp_get_max_threads(void);
int touch(void) { return omp_get_max_threads(); }
"""

# argv[2] threads in all: one spins in Python, one waits for the end of stdin, the others sleep.
SPIN_AMONG = """
import os, sys, threading
import torch
torch.set_num_threads(1)
def stop():
    sys.stdin.read()
    os._exit(0)
def spin():
    while True:
        pass
threading.Thread(target=stop, daemon=True).start()
for _ in range(int(sys.argv[2]) - 2):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
os.write(int(sys.argv[1]), b"ready")
spin()
"""
