"""Near-miss: a pool loses a worker, which is handled and the work done again; later an unrelated ValueError ends it.
The crash is real and is told, but the command went on after it: it is not how the command ended."""

import concurrent.futures
import multiprocessing
import os
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "report",
    "headline": ["ValueError: negative loss"],
    "against": ["SIGABRT"],
}
CONTROL = {"kind": "clean", "exit": 0}


def encode(shard):
    if shard == "broken":
        os.abort()
    return len(shard)


def encode_all(shards):
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return list(pool.map(encode, shards))


def report(loss):
    if loss < 0:
        raise ValueError("negative loss")


if __name__ == "__main__":
    broken = "--control" not in sys.argv
    try:
        encode_all(["broken" if broken else "fine"])
    except concurrent.futures.process.BrokenProcessPool:
        print("lost a worker, once more", encode_all(["fine"]))
    report(-1 if broken else 1)
