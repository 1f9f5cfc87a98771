"""The initializer of a pool raises, so that its worker leaves with status 0; before that a grep left with 1.
BrokenProcessPool is about a worker: another program that failed is none. Which worker, no status tells."""

import concurrent.futures
import multiprocessing
import subprocess
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "headline": ["BrokenProcessPool"],
}
CONTROL = {"kind": "clean", "exit": 0}


def find_gpu(broken):
    if broken:
        raise ValueError("no GPU 3")


if __name__ == "__main__":
    subprocess.run(["grep", "-q", "x", "/dev/null"])
    fork = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(1, fork, find_gpu, ("--control" not in sys.argv,)) as pool:
        print(pool.submit(len, "one").result())
