"""A worker is ended by SIGKILL; the parent sees its exit code and raises as torch's DataLoader does.
SIGKILL leaves no text in the worker; the signal is the parent's word, so the status is "supported"."""

import multiprocessing
import os
import signal
import sys

EXPECT = {
    "kind": "killed",
    "status": "established",
    "exit": 1,
    "signal": "SIGKILL",
    "role": "worker",
    "user_function": None,
    "headline": ["SIGKILL"],
}
CONTROL = {"kind": "clean", "exit": 0}


def load_batch(signo):
    os.kill(os.getpid(), signo)


def train_epoch(signo):
    worker = multiprocessing.get_context("fork").Process(target=load_batch, args=(signo,))
    worker.start()
    worker.join()
    if worker.exitcode:
        raise RuntimeError(f"DataLoader worker (pid {worker.pid}) is killed by signal: Killed. ")
    print("epoch 1 done")


if __name__ == "__main__":
    train_epoch(0 if "--control" in sys.argv else signal.SIGKILL)
