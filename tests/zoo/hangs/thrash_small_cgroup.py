"""More memory in use than a small control group allows, with swap to make up for it: most of the time goes to the disk.

Needs root, a memory control group and a swap file of its own; all three are taken away again when this program has
ended, however it ended, by a process that waits for that. The control touches no more than fits. Seen: hundreds of
major faults a second, state D, VmSwap of about 130 MiB.
"""

import ctypes
import os
import random
import shutil
import signal
import subprocess
import sys
import time

from stage import say_ready

EXPECT = {
    "kind": "swapping",
    "status": "established",
    "pid_role": "main",
    "thread": None,
    "python_function": "touch",
    "python_line_text": None,
    "facts": ["MiB of it in swap"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110
LIMIT_BYTES, USED_BYTES, SWAP_BYTES = 64 << 20, 192 << 20, 256 << 20
PAGE = 4096


def give_up(why):
    sys.stderr.write(why + "\n")
    sys.exit(77)


def make_swap(path):
    with open(path, "wb") as file:
        for _ in range(SWAP_BYTES >> 20):
            file.write(bytes(1 << 20))
    os.chmod(path, 0o600)
    subprocess.run([shutil.which("mkswap", path="/sbin:/usr/sbin"), path], check=True, stdout=subprocess.DEVNULL)
    if ctypes.CDLL(None, use_errno=True).swapon(os.fsencode(path), 0):
        give_up(f"swapon: {os.strerror(ctypes.get_errno())}")


def join_group():
    """Version 1 or 2 of control groups, whichever has the memory controller."""
    for root, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = f"{root}/harness-zoo-{os.getpid()}"
        try:
            os.mkdir(group)
            with open(f"{group}/{name}", "w") as file:
                file.write(str(LIMIT_BYTES))
            with open(f"{group}/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))
            return group
        except OSError:
            if os.path.isdir(group):
                os.rmdir(group)
    return give_up("needs a memory control group")


def clean_up_after(group, swap):
    """In a session of its own, so that what ends us does not end it."""
    alive, ours = os.pipe()
    if os.fork():
        os.close(alive)
        return
    os.close(ours)
    os.setsid()
    with open(os.path.dirname(group) + "/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))
    os.read(alive, 1)
    ctypes.CDLL(None).swapoff(os.fsencode(swap))
    os.unlink(swap)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.rmdir(group)
            break
        except OSError:
            time.sleep(0.05)
    os._exit(0)


def touch(memory, chance):
    last = len(memory) // PAGE - 1
    while True:
        memory[chance.randint(0, last) * PAGE] = 1


def main():
    if os.geteuid():
        give_up("needs root, for swap and a control group")
    swap = os.path.join(os.environ["TMPDIR"], "swap")
    make_swap(swap)
    clean_up_after(join_group(), swap)
    if "--control" in sys.argv:
        say_ready()
        while True:
            print("a step", flush=True)
            time.sleep(0.02)
    memory = bytearray(USED_BYTES)
    for at in range(0, USED_BYTES, PAGE):
        memory[at] = 1
    say_ready()
    touch(memory, random.Random(1))


signal.alarm(LIMIT_S)
main()
