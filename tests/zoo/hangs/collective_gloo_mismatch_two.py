"""Rank 0 of two is in all_reduce, rank 1 in broadcast: both wait in gloo, each for what the other never sends.

Neither is the one that is late, so either may be named. In the control both call the same. Seen: py-spy: rank 0 in
sync_gradients, rank 1 in share_weights, both main threads in a futex wait, nothing printed.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

from stage import say_ready

EXPECT = {
    "kind": "blocked-collective",
    "pid_role": "worker",
    "thread": "MainThread",
    "python_function": None,
    "python_line_text": None,
    "ranks": [
        {"ranks": [0], "function": "sync_gradients", "line_text": "dist.all_reduce(gradients)"},
        {"ranks": [1], "function": "share_weights", "line_text": "dist.broadcast(weights, src=0)"},
    ],
    "facts": ["gloo", "sync_gradients", "share_weights"],
}
CONTROL = {"kind": "progressing"}
NEEDS = ["torch"]
LIMIT_S = 110
WORLD = 2


def say_arrived():
    os.write(int(os.environ["ZOO_ARRIVED"]), b".")


def sync_gradients(dist, gradients):
    dist.all_reduce(gradients)


def share_weights(dist, weights):
    dist.broadcast(weights, src=0)


def train(dist, tensor, rank, control):
    sync_gradients(dist, tensor)
    say_arrived()
    if rank == 1 and not control:
        share_weights(dist, tensor)
    while True:
        sync_gradients(dist, tensor)
        print("rank", rank, "synced", flush=True)
        time.sleep(0.05)


def run_rank(store, control):
    import torch
    import torch.distributed as dist

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=world)
    dist.barrier()
    train(dist, torch.ones(4), rank, control)


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
    say_ready(ranks=[rank.pid for rank in ranks])
    for rank in ranks:
        rank.wait()


signal.alarm(LIMIT_S)
if "--rank" in sys.argv:
    run_rank(sys.argv[2], control="--control" in sys.argv)
else:
    launch()
