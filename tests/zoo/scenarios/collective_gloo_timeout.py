"""Rank 1 of two never comes to the all_reduce; rank 0 times out, the launcher exits with its code.
gloo gives up after the group's timeout and torch raises "Timed out waiting 2000ms for recv operation …".
Rank 0 told that nothing caught it; where rank 1 was then is seen before the launcher ends it."""

import datetime
import os
import subprocess
import sys
import tempfile

EXPECT = {
    "kind": "collective-failure",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "worker",
    "user_function": "sync_gradients",
    "rank": "0",
    "headline": ["gloo", "rank 0"],
    "grounds": ["rank 1 was in wait_for_launcher"],
}
CONTROL = {"kind": "clean", "exit": 0}
NEEDS = ["torch"]


def sync_gradients(group):
    import torch
    import torch.distributed as dist

    gradients = torch.ones(4)
    dist.all_reduce(gradients, group=group)
    print("gradients", gradients.tolist())


def wait_for_launcher():
    sys.stdin.read()  # until the launcher closes the pipe


def run_rank(store, late):
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    # Ranks may start seconds apart on a busy machine, so the short timeout begins when both are there.
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    dist.barrier()
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    if late and rank == 1:
        wait_for_launcher()
    else:
        sync_gradients(group)
    dist.destroy_process_group()


def start_rank(rank, store):
    environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    environment["GLOO_SOCKET_IFNAME"] = "lo"
    argv = [sys.executable, __file__, "--rank", store, *sys.argv[1:]]
    return subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE)


def launch():
    with tempfile.TemporaryDirectory() as directory:
        ranks = [start_rank(rank, os.path.join(directory, "store")) for rank in range(2)]
        status = ranks[0].wait()
        ranks[1].stdin.close()
        ranks[1].wait()
    return status


if "--rank" in sys.argv:
    run_rank(sys.argv[2], late="--control" not in sys.argv)
else:
    sys.exit(launch())
