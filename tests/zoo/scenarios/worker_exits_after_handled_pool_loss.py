"""A pool loses a worker by a segfault, which is handled; a second pool, as old, loses one that leaves with 7.
BrokenProcessPool names nobody, and nothing was started in between: which of the two was lost is not proven."""

import concurrent.futures
import ctypes
import multiprocessing
import os
import sys

EXPECT = {
    "kind": "exit-nonzero",
    "status": "supported",
    "exit": 1,
    "signal": None,
    "role": "worker",
    "headline": ["exit status 7"],
    "against": ["SIGSEGV"],
}
CONTROL = {"kind": "clean", "exit": 0}


def crash():
    ctypes.string_at(0)


def leave():
    os._exit(7)


def encode(first, second):
    print(second.submit(len, "started").result())
    workers = list(second._processes.values())
    try:
        first.submit(crash).result()
    except concurrent.futures.process.BrokenProcessPool:
        answer = second.submit(leave)
        workers[0].join()  # a process is gone some moments after its pool has noticed that it leaves
        answer.result()


if __name__ == "__main__" and "--control" not in sys.argv:
    context = multiprocessing.get_context("fork")
    pools = [concurrent.futures.ProcessPoolExecutor(1, context) for _ in range(2)]
    encode(*pools)
