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

# argv[1] gets the time of death, argv[2] is how many bytes to write before.
DIE = f"""
import os, resource, sys, time
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.stdout.write("".join({LINE!r}.format(step) for step in range(int(sys.argv[2]) // {len(LINE.format(0))})))
sys.stdout.flush()
os.write(int(sys.argv[1]), str(time.monotonic_ns()).encode())
os.abort()
"""
