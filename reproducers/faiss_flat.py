# /// script
# requires-python = ">=3.9"
# dependencies = ["faiss-cpu", "numpy"]
# ///
"""IndexFlatIP, add and search, k = 10, 32 and 1000: does faiss alone survive it?

Symptom: a search hangs or kills the process; the incident's evaluation (k = 1000) hung in it.
Cause: not known for faiss alone. From k = 100 on faiss collects results in reservoirs instead of heaps, another
    parallel code path. --control searches with k = 10, by heaps.
Upstream: faiss#5206 (hang after fork, GNU OpenMP), faiss-wheels#40 (two OpenMP runtimes).
Needs: faiss-cpu, numpy; no torch. `--scale seed` has the incident's index, 771,115 x 768 (2.4 GB).
"""

import argparse
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys

NAME = "faiss"
NEEDS = ["faiss", "numpy"]
SHAPES = {
    "tiny": {"vectors": 6000, "width": 64, "queries": 64, "steps": 32},
    "small": {"vectors": 60000, "width": 256, "queries": 128, "steps": 64},
    "seed": {"vectors": 771115, "width": 768, "queries": 256, "steps": 128},
}
DEFAULTS = {"device": "cpu", "scale": "tiny", "steps": None}
# What differs between arms. The values are the suspect's; ARMS change one each.
OPTIONS = {"k": 1000, "threads": 0}
ARMS = {"base": {}, "control": {"k": 10}, "k-32": {"k": 32}, "threads-1": {"threads": 1}}
# The best 10 of 1000 need not be summed in the same order: no two arms must agree, only repeats of one.
AGREE = []
EXPECT = {"kind": "clean", "exit": 0}
CHUNK = 65536


# shared: options and steps. These lines are the same in every reproducer, which must each run alone.
class Steps:
    """What happens, as JSON lines, unbuffered, in the file that HARNESS_STEPS names; without it only on stdout.

    A line is written before each part of a step, so that the last one says where the process died.
    """

    def __init__(self, total):
        self.total, self.step, self.ran, self.losses = total, 0, {}, hashlib.sha256()
        path = os.environ.get("HARNESS_STEPS")
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if path else None

    def tell(self, **facts):
        if self.file is not None:
            os.write(self.file, (json.dumps(facts) + "\n").encode())

    def enter(self, part):
        self.tell(step=self.step, at=part, ran=self.ran)

    def begin(self, step):
        self.step = step

    def end(self, loss):
        self.losses.update(loss.hex().encode())
        checksum = self.losses.hexdigest()[:16]
        self.tell(done=self.step, loss=loss, checksum=checksum, ran=self.ran)
        if self.step % max(1, self.total // 8) == 0 or self.step == self.total:
            print(f"step {self.step} of {self.total}: {loss:.6f}", flush=True)

    def finish(self):
        self.tell(finished=True)
        print(f"finished {self.total} steps, checksum {self.losses.hexdigest()[:16]}, ran with {self.ran}", flush=True)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--control", action="store_true", help=f"the same without the suspect: {ARMS['control']}")
    parser.add_argument("--device", choices=("cpu", "mps", "cuda"), default=DEFAULTS["device"])
    parser.add_argument("--scale", choices=list(SHAPES), default=DEFAULTS["scale"])
    parser.add_argument("--steps", type=int, default=DEFAULTS["steps"], help="default: as many as the scale has")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--describe", action="store_true", help="only say what is installed and which devices there are"
    )
    for name, value in OPTIONS.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), help=f"default: {value}")
    given = vars(parser.parse_args())
    chosen = dict(OPTIONS, **(ARMS["control"] if given["control"] else {}))
    chosen.update({name: given[name] for name in OPTIONS if given[name] is not None})
    shape = dict(SHAPES[given["scale"]])
    shape["steps"] = given["steps"] or shape["steps"]
    if chosen.get("threads"):  # before anything is imported: later it has no effect
        os.environ["OMP_NUM_THREADS"] = str(chosen["threads"])
    return argparse.Namespace(**{**given, **shape, **chosen})


def stop(why):
    sys.stderr.write(f"not run: {why}\n")
    raise SystemExit(77)


def need(name):
    """An import that fails although the package is there is a finding, not a missing precondition."""
    if importlib.util.find_spec(name) is None:
        stop(f"{sys.executable} has no {name}")
    return importlib.import_module(name)


def describe(devices):
    found = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions()}
    print(json.dumps({"python": platform.python_version(), "packages": found, "devices": devices}))


# end of shared


def build_index(faiss, numpy, options, steps):
    numbers = numpy.random.default_rng(options.seed)
    index = faiss.IndexFlatIP(options.width)
    for start in range(0, options.vectors, CHUNK):
        steps.enter(f"add {start}")
        rows = numbers.standard_normal((min(CHUNK, options.vectors - start), options.width), dtype="float32")
        index.add(rows)
    return index, numbers


def search(options):
    faiss, numpy = need("faiss"), need("numpy")
    steps = Steps(options.steps)
    index, numbers = build_index(faiss, numpy, options, steps)
    steps.ran["device"] = ["cpu"]
    for step in range(1, options.steps + 1):
        steps.begin(step)
        queries = numbers.standard_normal((options.queries, options.width), dtype="float32")
        steps.enter("search")
        distances, found = index.search(queries, options.k)
        steps.ran.update(k=found.shape[1], vectors=index.ntotal, threads={"faiss": faiss.omp_get_max_threads()})
        steps.end(float(distances.astype("float64").sum()) + int(found.sum()))
    steps.finish()


chosen = read_options()
if chosen.describe:
    describe({"cpu": None})
elif chosen.device != "cpu":
    stop(f"faiss-cpu has no {chosen.device}")
else:
    search(chosen)
