"""A program kills a worker of its own pool, and then dies of BrokenProcessPool, which names nobody.
No worker was gone before: the one that was killed is the one that was lost, and who sent SIGKILL is told."""

import concurrent.futures
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
    "headline": ["SIGKILL", "sent by its parent"],
}
CONTROL = {"kind": "clean", "exit": 0}
NEEDS_ROOT = True


def wait_for_stdin(descriptor):
    os.read(descriptor, 1)


def encode_all():
    reader, _ = os.pipe()
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        answer = pool.submit(wait_for_stdin, reader)
        os.kill(next(iter(pool._processes)), signal.SIGKILL)
        answer.result()


if __name__ == "__main__" and "--control" not in sys.argv:
    encode_all()
