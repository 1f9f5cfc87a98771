"""A worker of joblib's pool is ended by SIGKILL; the parent dies of TerminatedWorkerError, which names no process.
The exception is the library's word for a worker that it lost; which one is read from the tree."""

import os
import signal
import sys

EXPECT = {
    "kind": "killed",
    "status": "established",
    "exit": 1,
    "signal": "SIGKILL",
    "role": "worker",
    "headline": ["SIGKILL"],
}
CONTROL = {"kind": "clean", "exit": 0}
NEEDS = ["joblib"]


def encode(shard, broken):
    if broken:
        os.kill(os.getpid(), signal.SIGKILL)
    return shard


if __name__ == "__main__":
    import joblib

    broken = "--control" not in sys.argv
    print(joblib.Parallel(n_jobs=2)(joblib.delayed(encode)(shard, broken) for shard in range(2)))
