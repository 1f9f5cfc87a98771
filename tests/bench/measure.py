"""What a command cost: wall time, CPU time of its whole tree, PSS and CPU of live processes.

A wrong exit status or lost output raises MeasurementFailed; a slow figure never does. Linux only (/proc).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

PYTHON = sys.executable
_SCRIPT = Path(PYTHON).with_name("harness")
HARNESS = [str(_SCRIPT)] if _SCRIPT.exists() else [PYTHON, "-m", "harness"]
RUN = [*HARNESS, "run", "--"]
# Unset for both sides: the first two, because harness sets them for its command and the bare peer must not have them;
# the third, because an installed package has its bytecode cached.
UNSET = ("PYTHONUNBUFFERED", "PYTHONFAULTHANDLER", "PYTHONDONTWRITEBYTECODE")
_PR_SET_CHILD_SUBREAPER = 36
_READ_BYTES = 1024**2


class MeasurementFailed(Exception):
    """The command did not do what it was measured for."""


class Cost(NamedTuple):
    begun_ns: int  # CLOCK_MONOTONIC, the same in all processes
    ended_ns: int
    cpu_s: float  # user + system, of every process of the tree, relays included
    stdout: bytes
    stderr: bytes

    @property
    def wall_s(self) -> float:
        return (self.ended_ns - self.begun_ns) / 1e9


class Stream(NamedTuple):
    wall_s: float
    cpu_s: float
    flow_s: float  # first to last byte


class Live(NamedTuple):
    process: subprocess.Popen[bytes]
    ready: bytes  # what the target said when it was ready


def adopt_orphans() -> None:
    """Relays outlive the supervisor; only an ancestor that reaps them sees their CPU time."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    return {**kept, "HARNESS_CASES": str(Path(tempfile.gettempdir()) / f"harness-bench-{os.getpid()}")}


def _tree_cpu_s() -> float:
    """Of all that has ended, after waiting for what still ends."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def require(condition: bool, what: str) -> None:
    if not condition:
        raise MeasurementFailed(what)


def run(argv: Sequence[str], *, status: int = 0, **variables: str) -> Cost:
    cpu_before, begun_ns = _tree_cpu_s(), time.monotonic_ns()
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment() | variables
    )
    stdout, stderr = process.communicate()
    ended_ns = time.monotonic_ns()
    words = stderr.decode(errors="replace").strip()[-300:]
    require(process.returncode == status, f"{' '.join(argv)[:120]}: exit status {process.returncode}: {words}")
    return Cost(begun_ns, ended_ns, _tree_cpu_s() - cpu_before, stdout, stderr)


def stream(argv: Sequence[str], expected_bytes: int, **variables: str) -> Stream:
    """Reads the command's stdout to its end without keeping it."""
    cpu_before, begun = _tree_cpu_s(), time.perf_counter()
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment() | variables)
    buffer, total, first = bytearray(_READ_BYTES), 0, 0.0
    while got := os.readv(process.stdout.fileno(), [buffer]):
        first = first or time.perf_counter()
        total += got
    ended = time.perf_counter()
    process.stdout.close()
    require(process.wait() == 0, f"{' '.join(argv)[:120]}: exit status {process.returncode}")
    require(total == expected_bytes, f"{' '.join(argv)[:120]}: {total} bytes arrived, {expected_bytes} were written")
    return Stream(time.perf_counter() - begun, _tree_cpu_s() - cpu_before, ended - first)


def interleave(repeats: int, *measurements: Callable[[], float]) -> list[list[float]]:
    """A-B-A-B, so that a noisy minute hits all alike. One list of figures for each measurement."""
    rounds = [[measure() for measure in measurements] for _ in range(repeats)]
    return [list(column) for column in zip(*rounds, strict=True)]


def median_ratio(ours: list[float], peer: list[float]) -> tuple[float, float, float]:
    """Median, lowest, highest over the pairs."""
    ratios = [a / b for a, b in zip(ours, peer, strict=True)]
    return median(ratios), min(ratios), max(ratios)


@contextlib.contextmanager
def live(prefix: Sequence[str], program: str, *words: str) -> Iterator[Live]:
    """The program, running and ready: it says so on the descriptor in argv[1], and ends when its stdin does."""
    read_end, write_end = os.pipe()
    argv = [*prefix, PYTHON, "-c", program, str(write_end), *words]
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[write_end], env=environment()
    )
    os.close(write_end)
    try:
        ready = os.read(read_end, 64)
        require(bool(ready), f"{' '.join(argv)[:120]}: ended before it was ready")
        yield Live(process, ready)
    finally:
        process.stdin.close()
        status = process.wait()
        os.close(read_end)
        _tree_cpu_s()
    require(status == 0, f"{' '.join(argv)[:120]}: exit status {status}")


def children(pid: int, name: str) -> list[int]:
    """Direct children with that name, from /proc/PID/stat: pid (name) state ppid."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            head, _, rest = path.read_text().rpartition(")")
            if int(rest.split()[1]) == pid and head.partition("(")[2] == name:
                found.append(int(path.parent.name))
    return found


def cpu_s(pids: Sequence[int]) -> float:
    """Time on a CPU so far, from /proc/PID/task/TID/schedstat (ns; /proc/PID/stat counts in 10 ms)."""
    tasks = [path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(path.read_text().split()[0]) for path in tasks) / 1e9


def cpu_share(pids: Sequence[int], window_s: float) -> float:
    """CPU seconds per second over the window."""
    before, begun = cpu_s(pids), time.perf_counter()
    time.sleep(window_s)
    return (cpu_s(pids) - before) / (time.perf_counter() - begun)


def pss_mib(pids: Sequence[int]) -> float:
    """Proportional set size: pages shared with other processes count in part, so the figures add up."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
