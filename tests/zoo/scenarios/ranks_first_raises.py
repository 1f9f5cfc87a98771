"""Rank 1 of two raises a ValueError while rank 0 waits for it in an all_reduce and then loses its peer.
torchrun ends both and fails with ChildFailedError. Rank 1 failed first; what rank 0 raises follows from it."""

import os
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "worker",
    "rank": "1",
    "user_function": "load_shard",
    "headline": ["ValueError: shard 7 is empty", "rank 1"],
}
CONTROL = {"kind": "clean", "exit": 0}
NEEDS = ["torch"]
COMMAND = [
    "sh",
    "-c",
    "exec {python} -m torch.distributed.run --standalone --local-addr 127.0.0.1 --nproc-per-node 2 {file} {control}",
]


def load_shard(rank):
    if rank == 1 and "--control" not in sys.argv:
        raise ValueError("shard 7 is empty")


def train():
    import torch
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo")
    dist.barrier()
    load_shard(dist.get_rank())
    dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
