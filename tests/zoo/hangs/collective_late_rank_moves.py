"""A launcher that only looks after its ranks: rank 0 is in a barrier, rank 1 never comes and goes on writing its log.

The launcher and a thread of rank 0 write all the time. In the control rank 1 comes to every barrier. Seen: py-spy:
rank 0 in meet, rank 1 in prepare.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

from stage import say_ready

EXPECT = {
    "kind": "blocked-collective",
    "moving": True,
    "pid_role": "worker",
    "thread": "MainThread",
    "python_function": "prepare",
    "python_line_text": None,
    "ranks": [
        {"ranks": [0], "function": "meet", "line_text": "dist.barrier()"},
        {"ranks": [1], "function": "prepare", "line_text": None},
    ],
    "facts": ["gloo", "rank 1", "has not arrived, it moves"],
}
CONTROL = {"kind": "progressing"}
NEEDS = ["torch"]
LIMIT_S = 110
WORLD = 2


def beat(path):
    with open(path, "w", buffering=1) as log:
        while True:
            print("alive", file=log)
            time.sleep(0.1)


def meet(dist):
    dist.barrier()


def prepare(log):
    while True:
        print("prepared a shard", file=log)
        time.sleep(0.1)


def run_rank(store, control):
    import torch.distributed as dist

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=world)
    meet(dist)
    if rank == 0:
        threading.Thread(target=beat, args=(f"{store}.{rank}.beat",), daemon=True).start()
    os.write(int(os.environ["ZOO_ARRIVED"]), b".")
    with open(f"{store}.{rank}.log", "w", buffering=1) as log:
        if rank == 1 and not control:
            prepare(log)
        while True:
            meet(dist)
            print("met", file=log)
            time.sleep(0.05)


def start_rank(rank, store, arrived):
    environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD))
    environment.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", ZOO_ARRIVED=str(arrived))
    argv = [sys.executable, __file__, "--rank", store, *sys.argv[1:]]
    return subprocess.Popen(argv, env=environment, pass_fds=[arrived])


def launch():
    store = os.path.join(tempfile.mkdtemp(), "store")
    arrived, arrival = os.pipe()
    ranks = [start_rank(rank, store, arrival) for rank in range(WORLD)]
    for _ in ranks:
        os.read(arrived, 1)
    say_ready(pid=ranks[1].pid, ranks=[rank.pid for rank in ranks])
    with open(f"{store}.launcher", "w", buffering=1) as log:
        while all(rank.poll() is None for rank in ranks):
            print("all ranks are there", file=log)
            time.sleep(0.1)


signal.alarm(LIMIT_S)
if "--rank" in sys.argv:
    run_rank(sys.argv[2], control="--control" in sys.argv)
else:
    launch()
