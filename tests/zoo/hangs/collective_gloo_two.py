"""Rank 0 of two is in all_reduce; rank 1 has not arrived: it waits for data on a pipe that stays empty.

In the control both come to every all_reduce. Seen: py-spy: rank 0 in sync_gradients, in a futex wait; rank 1 in
wait_for_data, in read (anon_pipe_read).
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
    "python_function": "wait_for_data",
    "python_line_text": "return os.read(data, 100)",
    "ranks": [
        {"ranks": [0], "function": "sync_gradients", "line_text": "dist.all_reduce(gradients)"},
        {"ranks": [1], "function": "wait_for_data", "line_text": "return os.read(data, 100)"},
    ],
    "facts": ["gloo", "rank 1", "wait_for_data"],
}
CONTROL = {"kind": "progressing"}
NEEDS = ["torch"]
LIMIT_S = 110
WORLD = 2


def say_arrived():
    os.write(int(os.environ["ZOO_ARRIVED"]), b".")


def sync_gradients(dist, gradients):
    dist.all_reduce(gradients)


def wait_for_data(data):
    return os.read(data, 100)


def train(dist, gradients, rank, control):
    data, _feed = os.pipe()
    sync_gradients(dist, gradients)
    say_arrived()
    if rank == 1 and not control:
        wait_for_data(data)
    while True:
        sync_gradients(dist, gradients)
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
    say_ready(pid=ranks[1].pid, ranks=[rank.pid for rank in ranks])
    for rank in ranks:
        rank.wait()


signal.alarm(LIMIT_S)
if "--rank" in sys.argv:
    run_rank(sys.argv[2], control="--control" in sys.argv)
else:
    launch()
