# /// script
# requires-python = ">=3.9"
# dependencies = ["torch>=2", "faiss-cpu", "numpy"]
# ///
"""torch and faiss in one process: a GRU backward, then a search with k >= 100. Do their OpenMP runtimes get along?

Symptom: "OMP: Error #15" and SIGABRT, often lost in a buffered log; with KMP_DUPLICATE_LIB_OK=TRUE a hang or a
    segfault instead.
Cause: two OpenMP runtimes of the LLVM family in one process, one that came with torch, one with faiss. Which calls are
    bound to which copy depends on the order of import. --control imports torch first, which on Linux lets torch's copy
    serve both.
Upstream: faiss-wheels#40, pytorch#78490, pytorch#149201.
Needs: torch, faiss-cpu, numpy.
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

NAME = "openmp"
NEEDS = ["torch", "faiss", "numpy"]
SHAPES = {
    "tiny": {"batch": 16, "time": 8, "width": 64, "hidden": 32, "vectors": 4000, "queries": 64, "steps": 16},
    "small": {"batch": 16, "time": 50, "width": 256, "hidden": 128, "vectors": 40000, "queries": 128, "steps": 64},
    "seed": {"batch": 16, "time": 100, "width": 768, "hidden": 512, "vectors": 771115, "queries": 256, "steps": 128},
}
DEFAULTS = {"device": "cpu", "scale": "tiny", "steps": None}
# What differs between arms. The values are the suspect's (imports sorted by name, as isort leaves them).
OPTIONS = {"order": "faiss,torch", "faiss": "on", "k": 1000, "threads": 0}
ARMS = {
    "base": {},
    "control": {"order": "torch,faiss"},
    "k-10": {"k": 10},
    "faiss-off": {"faiss": "off"},
    "threads-1": {"threads": 1},
}
# The searches do not feed the training: the losses of these must be equal, bit for bit.
AGREE = [["base", "control", "k-10", "faiss-off"]]
# In an environment with one OpenMP runtime, and in one with two of the LLVM family (Linux).
EXPECT = {"kind": "clean", "exit": 0}
EXPECT_TWO_RUNTIMES = {
    "base": {"kind": "duplicate-openmp", "exit": 134, "step": 1, "at": "search", "component": "faiss-cpu"},
    "control": {"kind": "clean", "exit": 0},
    "faiss-off": {"kind": "clean", "exit": 0},
}


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


# shared: devices. All that depends on the device is in this table; the lines are the same in every torch reproducer.
def why_no_mps(torch):
    if sys.platform != "darwin":
        return f"this is {platform.system()}, not a Mac"
    if not torch.backends.mps.is_built():
        return f"torch {torch.__version__} is built without MPS"
    if not torch.backends.mps.is_available():
        return (
            f"macOS {platform.mac_ver()[0]} on {platform.machine()} offers no MPS device: it needs 14.0 and a Metal GPU"
        )
    return None


def why_no_cuda(torch):
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} is built without CUDA"
    if not torch.cuda.is_available():
        driver = os.path.exists("/proc/driver/nvidia/version")
        return "no CUDA device is visible, although there is a driver" if driver else "no NVIDIA driver is loaded"
    return None


# why it is not there, wait for it, bytes in use, empty its cache
DEVICES = {
    "cpu": (lambda torch: None, lambda torch: None, None, None),
    "mps": (
        why_no_mps,
        lambda torch: torch.mps.synchronize(),
        lambda torch: torch.mps.driver_allocated_memory(),
        lambda torch: torch.mps.empty_cache(),
    ),
    "cuda": (
        why_no_cuda,
        lambda torch: torch.cuda.synchronize(),
        lambda torch: torch.cuda.memory_reserved(),
        lambda torch: torch.cuda.empty_cache(),
    ),
}


class Device:
    """Never another device than the one asked for."""

    def __init__(self, torch, name):
        why_not, synchronise, memory, self.empty_cache = DEVICES[name]
        if why_not(torch):
            stop(f"no {name}: {why_not(torch)}")
        self.torch, self.name, self.cleared = torch, name, 0
        self.synchronise = lambda: synchronise(torch)
        self.memory_bytes = lambda: memory(torch) if memory else None

    def clear_cache(self, steps):
        if self.empty_cache is None:
            stop(f"{self.name} has no cache to clear")
        self.empty_cache(self.torch)
        self.cleared += 1
        steps.ran["clear_cache"] = self.cleared

    def report(self, steps, module):
        """What can be seen of a module once it has run."""
        steps.ran["device"] = sorted({parameter.device.type for parameter in module.parameters()})
        steps.ran["threads"] = {**steps.ran.get("threads", {}), "torch": self.torch.get_num_threads()}
        if self.name != "cpu":
            steps.ran["device_memory_bytes"] = self.memory_bytes()
        if self.name == "mps":
            steps.ran["mps_fallback"] = os.environ.get("PYTORCH_ENABLE_MPS_FALLBACK", "0")


def list_devices():
    if importlib.util.find_spec("torch") is None:
        return None
    torch = importlib.import_module("torch")
    return {name: row[0](torch) for name, row in DEVICES.items()}


# end of shared


def make_search(options):
    """faiss's, or the same answer by numpy alone."""
    numpy = need("numpy")
    vectors = numpy.random.default_rng(options.seed).standard_normal((options.vectors, options.width), dtype="float32")
    queries = vectors[: options.queries]
    if options.faiss == "off":
        return lambda: numpy.argsort(-(queries @ vectors.T), axis=1)[:, : options.k]
    index = sys.modules["faiss"].IndexFlatIP(options.width)
    index.add(vectors)
    return lambda: index.search(queries, options.k)[1]


def train(options):
    steps = Steps(options.steps)
    for name in options.order.split(","):
        if name != "faiss" or options.faiss == "on":
            steps.enter(f"import {name}")
            need(name)
    steps.ran["order"] = ",".join(name for name in sys.modules if name in ("torch", "faiss"))
    steps.ran["faiss"] = "on" if "faiss" in sys.modules else "off"
    torch = sys.modules["torch"]
    device = Device(torch, options.device)
    torch.manual_seed(options.seed)
    gru = torch.nn.GRU(options.width, options.hidden, batch_first=True, bidirectional=True).to(device.name)
    search = make_search(options)
    for step in range(1, options.steps + 1):
        steps.begin(step)
        steps.enter("GRU forward")
        loss = gru(torch.randn(options.batch, options.time, options.width).to(device.name))[0].square().mean()
        steps.enter("GRU backward")
        gru.zero_grad()
        loss.backward()
        device.synchronise()
        device.report(steps, gru)
        steps.enter("search")
        steps.ran["k"] = search().shape[1]
        if options.faiss == "on":
            steps.ran["threads"]["faiss"] = sys.modules["faiss"].omp_get_max_threads()
        steps.end(loss.item())
    steps.finish()


chosen = read_options()
if chosen.describe:
    describe(list_devices())
else:
    train(chosen)
