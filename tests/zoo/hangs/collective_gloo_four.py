"""Three of four ranks are in all_reduce; rank 2 had one batch fewer and is in the barrier after the epoch.

In the control all have the same number of batches. Seen: py-spy on all four: three in sync_gradients, rank 2 in
end_epoch; gdb: the main threads are in c10d::Work::wait, gloo::barrier and UnboundBuffer::waitRecv are on a thread
"pt_gloo_runloop" without Python frames.
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
    "python_function": "end_epoch",
    "python_line_text": "dist.barrier()  # end",
    "ranks": [
        {"ranks": [0, 1, 3], "function": "sync_gradients", "line_text": "dist.all_reduce(gradients)"},
        {"ranks": [2], "function": "end_epoch", "line_text": "dist.barrier()  # end"},
    ],
    "facts": ["gloo", "rank 2", "end_epoch"],
}
CONTROL = {"kind": "progressing"}
NEEDS = ["torch"]
LIMIT_S = 110
WORLD = 4


def say_arrived():
    os.write(int(os.environ["ZOO_ARRIVED"]), b".")


def sync_gradients(dist, gradients):
    dist.all_reduce(gradients)


def end_epoch(dist):
    dist.barrier()  # end


def train(dist, gradients, rank, control):
    sync_gradients(dist, gradients)
    say_arrived()
    if rank == 2 and not control:
        end_epoch(dist)
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
    say_ready(pid=ranks[2].pid, ranks=[rank.pid for rank in ranks])
    for rank in ranks:
        rank.wait()


signal.alarm(LIMIT_S)
if "--rank" in sys.argv:
    run_rank(sys.argv[2], control="--control" in sys.argv)
else:
    launch()
