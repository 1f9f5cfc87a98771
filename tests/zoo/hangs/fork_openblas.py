"""scikit-learn's KMeans, then a forked worker that runs another (scikit-learn#23823).

OpenBLAS makes its threads anew in the child, libgomp does not: the child has several threads, and those of libgomp's
pool are not among them. In the control KMeans runs in the child alone, whose pool is its own. Seen: gdb has
gomp_team_barrier_wait_end under GOMP_parallel on the child's main thread, and blas_thread_server on all others.
"""

import multiprocessing
import os
import signal
import sys

from stage import say_ready

EXPECT = {
    "kind": "deadlock-fork",
    "status": "established",
    "pid_role": "worker",
    "thread": "MainThread",
    "python_function": "find_clusters",
    "python_line_text": "return KMeans(4, n_init=1, random_state=0).fit(rows).inertia_",
    "facts": ["libgomp"],
}
CONTROL = {"kind": "progressing"}
NEEDS = ["sklearn"]
LIMIT_S = 110


def find_clusters(rows):
    from sklearn.cluster import KMeans

    return KMeans(4, n_init=1, random_state=0).fit(rows).inertia_


def run_child(rows, control):
    signal.alarm(LIMIT_S)  # fork clears alarms
    if control:  # scikit-learn takes long to import on a busy machine
        print("inertia", find_clusters(rows), flush=True)
    say_ready(pid=os.getpid())
    while True:
        print("inertia", find_clusters(rows), flush=True)


def run(control):
    import numpy

    signal.alarm(LIMIT_S)
    rows = numpy.random.default_rng(0).random((20_000, 16))
    rows @ rows.T[:, :64]
    if not control:
        print("inertia", find_clusters(rows), flush=True)
    worker = multiprocessing.get_context("fork").Process(target=run_child, args=(rows, control))
    worker.start()
    worker.join()


if __name__ == "__main__":
    run(control="--control" in sys.argv)
