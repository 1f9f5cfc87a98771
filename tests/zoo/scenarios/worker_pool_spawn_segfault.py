"""A spawned worker of a process pool segfaults; the parent dies of BrokenProcessPool.
The worker is a fresh interpreter (multiprocessing.spawn.spawn_main); its SIGSEGV is the cause."""

import concurrent.futures
import ctypes
import multiprocessing
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 1,
    "signal": "SIGSEGV",
    "role": "worker",
    "user_function": "load_batch",
    "headline": ["load_batch"],
}
CONTROL = {"kind": "clean", "exit": 0}


def load_batch(number, broken):
    if broken and number == 3:
        ctypes.string_at(0)
    return number


def train_epoch(broken):
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        batches = [pool.submit(load_batch, number, broken) for number in range(6)]
        print("loaded", sum(batch.result() for batch in batches))


if __name__ == "__main__":
    train_epoch(broken="--control" not in sys.argv)
