"""Of three ranks rank 1 segfaults; the launcher, like torchrun, sends SIGTERM to the others and exits with 1.
The first death is the cause; two SIGTERM deaths and the launcher's own 1 follow from it. Only supported:
the launcher does not say why it left with 1."""

import ctypes
import os
import subprocess
import sys
import time

EXPECT = {
    "kind": "segfault",
    "status": "supported",
    "exit": 1,
    "signal": "SIGSEGV",
    "role": "worker",
    "user_function": "train_step",
    "headline": ["train_step"],
}
CONTROL = {"kind": "clean", "exit": 0}
WORLD_SIZE = 3


def train_step(rank, broken):
    if broken and rank == 1:
        ctypes.string_at(0)
    if broken:
        sys.stdin.read()  # a collective that waits for rank 1; ends if the launcher goes away
    print("rank", rank, "done")


def start_rank(rank):
    environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD_SIZE))
    argv = [sys.executable, __file__, "--rank", *sys.argv[1:]]
    return subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE)


def launch():
    ranks = [start_rank(rank) for rank in range(WORLD_SIZE)]
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            for rank in ranks:
                rank.terminate()
        time.sleep(0.02)
    return 1 if any(rank.returncode for rank in ranks) else 0


if "--rank" in sys.argv:
    train_step(int(os.environ["RANK"]), broken="--control" not in sys.argv)
else:
    sys.exit(launch())
