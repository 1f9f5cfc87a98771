# /// script
# requires-python = ">=3.9"
# dependencies = ["torch>=2", "faiss-cpu", "numpy"]
# ///
"""The whole training of a two-tower retriever on generated data: GRU tower, bank, accumulation, mining, evaluation.

Symptom: the process vanishes in the middle of an epoch, on MPS and on CPU, or hangs in a faiss search.
Cause: two OpenMP runtimes in one process where it prints Error #15; of deaths that leave nothing, not known. This is
    the program with everything in it; the arms take one thing away each. --control imports torch before faiss.
Upstream: faiss-wheels#40, pytorch#149201.
Needs: torch, faiss-cpu, numpy. `--scale seed` has the exact shapes: 35,901 x 100 x 768 training rows (11 GB),
    771,115 documents (2.4 GB), a bank of 50,000.
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

NAME = "twotower"
NEEDS = ["torch", "faiss", "numpy"]
SHAPES = {
    "tiny": {
        "rows": 128, "time": 6, "width": 48, "hidden": 32, "documents": 3000, "bank_rows": 256, "queries": 32,
        "mine_every": 16, "evaluate_every": 24, "steps": 32,
    },
    "small": {
        "rows": 2048, "time": 50, "width": 256, "hidden": 128, "documents": 40000, "bank_rows": 8192, "queries": 128,
        "mine_every": 64, "evaluate_every": 128, "steps": 256,
    },
    "seed": {
        "rows": 35901, "time": 100, "width": 768, "hidden": 512, "documents": 771115, "bank_rows": 50000,
        "queries": 3990, "mine_every": 1122, "evaluate_every": 1122, "steps": 2244,
    },
}  # fmt: skip
DEFAULTS = {"device": "cpu", "scale": "tiny", "steps": None}
# What differs between arms. The values are the incident's (imports sorted by name, as isort leaves them).
OPTIONS = {
    "order": "faiss,torch",
    "faiss": "on",
    "accumulation": 16,
    "batch": 16,
    "cell": "gru",
    "bank": "on",
    "data": "resident",
    "threads": 0,
    "clear_cache": "off",
}
ARMS = {
    "base": {},
    "control": {"order": "torch,faiss"},
    "faiss-off": {"faiss": "off"},
    "accumulation-4": {"accumulation": 4},
    "bank-off": {"bank": "off"},
    "threads-1": {"threads": 1},
    "clear-cache": {"clear_cache": "on"},
}
# Same seed, same arithmetic: the losses of these must be equal, bit for bit.
AGREE = [["base", "control", "clear-cache"]]
# In an environment with one OpenMP runtime, and in one with two of the LLVM family (Linux).
EXPECT = {"kind": "clean", "exit": 0}
EXPECT_TWO_RUNTIMES = {
    "base": {"kind": "duplicate-openmp", "exit": 134, "step": 16, "at": "mining", "component": "faiss-cpu"},
    "control": {"kind": "clean", "exit": 0},
    "faiss-off": {"kind": "clean", "exit": 0},
}
HARD_NEGATIVES = 8
EVALUATION_K = 1000


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


# shared: the query tower, its loss and its memory bank; the same lines in gru, accum and twotower.
def make_tower(torch, cell, width, hidden):
    """Recurrent, both directions → mean over time → linear → length 1. The control has no recurrent kernel."""

    class Tower(torch.nn.Module):
        def __init__(self):
            super().__init__()
            kinds = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}
            if cell == "linear":
                self.inner = torch.nn.Linear(width, 2 * hidden)
            else:
                self.inner = kinds[cell](width, hidden, batch_first=True, bidirectional=True)
            self.outer = torch.nn.Linear(2 * hidden, width)

        def forward(self, rows):
            seen = self.inner(rows)
            seen = torch.tanh(seen) if cell == "linear" else seen[0]
            return torch.nn.functional.normalize(self.outer(seen.mean(dim=1)), dim=1)

    return Tower()


def find_loss(torch, queries, documents, negatives):
    """InfoNCE, tau 0.05, over positives, the batch and further negatives, plus a margin of 0.03."""
    scores = queries @ documents.T
    if negatives is not None:
        scores = torch.cat([scores, queries @ negatives.T], dim=1)
    right = torch.arange(len(queries), device=queries.device)
    positive = scores[right, right]
    others = scores.clone()
    others[right, right] = -2.0
    margin = torch.relu(0.03 - positive + others.max(dim=1).values).mean()
    return torch.nn.functional.cross_entropy(scores / 0.05, right) + margin


def push_into_bank(torch, bank, documents, rows):
    """First in, first out, by torch.cat and a slice, as the incident's program had it."""
    new = documents.detach()
    return new if bank is None else torch.cat([new, bank])[:rows]


# end of shared


class Documents:
    """What is searched: for hard negatives (K = 4 x number) and to evaluate (K = 1000)."""

    def __init__(self, torch, options, steps):
        self.torch, self.options, self.steps, self.searches, self.index = torch, options, steps, 0, None
        self.rows = torch.nn.functional.normalize(torch.randn(options.documents, options.width), dim=1)
        if options.faiss == "on":
            steps.enter("index")
            self.index = sys.modules["faiss"].IndexFlatIP(options.width)
            self.index.add(self.rows.numpy())

    def search(self, queries, k):
        wanted = queries.detach().cpu()
        if self.index is None:
            return (wanted @ self.rows.T).topk(k, dim=1).indices
        found = self.torch.from_numpy(self.index.search(wanted.numpy(), k)[1])
        self.searches += 1
        self.steps.ran["searches"] = self.searches
        self.steps.ran["threads"]["faiss"] = sys.modules["faiss"].omp_get_max_threads()
        return found

    def mine(self, queries):
        self.steps.enter("mining")
        found = self.search(queries, 4 * HARD_NEGATIVES)[:, -HARD_NEGATIVES:]
        return self.rows[found.reshape(-1).unique()].to(queries.device)

    def evaluate(self, queries):
        self.steps.enter("evaluation")
        return self.search(queries, EVALUATION_K)


def import_in_order(options, steps):
    for name in options.order.split(","):
        if name != "faiss" or options.faiss == "on":
            steps.enter(f"import {name}")
            need(name)
    steps.ran["order"] = ",".join(name for name in sys.modules if name in ("torch", "faiss"))
    steps.ran["faiss"] = "on" if "faiss" in sys.modules else "off"
    return sys.modules["torch"]


def make_batches(torch, options, steps):
    """The whole set in memory as in the incident, or each batch when it is needed."""
    steps.enter("data")
    shape = (options.time, options.width)
    whole = torch.randn(options.rows, *shape) if options.data == "resident" else None
    order = torch.Generator().manual_seed(options.seed)
    while True:
        if whole is None:
            yield torch.randn(options.batch, *shape)
        else:
            yield whole[torch.randint(options.rows, (options.batch,), generator=order)]


def train(options):
    steps = Steps(options.steps)
    torch = import_in_order(options, steps)
    device = Device(torch, options.device)
    torch.manual_seed(options.seed)
    tower = make_tower(torch, options.cell, options.width, options.hidden).to(device.name)
    optimizer = torch.optim.AdamW(tower.parameters(), lr=5e-5, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps, eta_min=1e-6)
    documents, batches = Documents(torch, options, steps), make_batches(torch, options, steps)
    held_out = torch.randn(options.queries, options.time, options.width)
    steps.ran.update(cell=type(tower.inner).__name__.lower(), data=options.data, searches=0)
    bank, hard, pending = None, None, 0
    mine_every = min(options.mine_every, max(1, options.steps // 2))  # a short run does everything, too
    evaluate_every = min(options.evaluate_every, options.steps)
    for step in range(1, options.steps + 1):
        steps.begin(step)
        steps.enter("data")
        rows = next(batches).to(device.name)
        positives = torch.nn.functional.normalize(rows.mean(dim=1), dim=1)
        steps.enter("forward")
        queries = tower(rows)
        further = [part for part in (bank, hard) if part is not None]
        loss = find_loss(torch, queries, positives, torch.cat(further) if further else None)
        steps.enter("backward")
        (loss / options.accumulation).backward()
        pending += 1
        if pending == options.accumulation:
            steps.enter("optimizer")
            optimizer.step()
            optimizer.zero_grad()
            steps.ran["accumulation"], pending = pending, 0
        schedule.step()
        if options.bank == "on":
            steps.enter("bank")
            bank = push_into_bank(torch, bank, positives, options.bank_rows)
        if options.clear_cache == "on":
            steps.enter("clear cache")
            device.clear_cache(steps)
        device.synchronise()
        steps.ran.update(batch=len(rows), bank="off" if bank is None else "on")
        device.report(steps, tower)
        if step % mine_every == 0:
            hard = documents.mine(queries)
        if step % evaluate_every == 0:
            with torch.no_grad():
                documents.evaluate(tower(held_out[: options.queries].to(device.name)))
        steps.end(loss.item())
    steps.finish()


chosen = read_options()
if chosen.describe:
    describe(list_devices())
else:
    train(chosen)
