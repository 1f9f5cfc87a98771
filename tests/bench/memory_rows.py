"""What the memory timeline costs: one sample against psutil's, and the sampler's share of a core while memory grows.

With 1, 16 and 128 processes that all grow, so that the sampler wants to be fast: the worst case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from harness.capture.usage.sampler import Sampler
from tests.bench.measure import RUN, children, interleave, live
from tests.bench.table import Note, Plan, Row, met, timing_row

_COUNTS = (1, 16, 128)
_GOAL = 0.005
_SAMPLES = 20
# Each process grows by 64 KiB twenty times a second; the first one says that all are there.
GROWING = """
import os, select, sys, time
count, own = int(sys.argv[2]), True
read_end, write_end = os.pipe()
for _ in range(count - 1):
    if os.fork() == 0:
        own = False
        break
if own:
    os.write(int(sys.argv[1]), b"ready")
else:
    os.close(write_end)
kept = []
while not select.select([0 if own else read_end], [], [], 0.05)[0]:
    kept.append(b"x" * (64 << 10))
"""


def measure_memory(plan: Plan) -> Iterator[Row | Note]:
    for count in _COUNTS:
        with live(RUN, GROWING, str(count)) as target:
            supervisor = target.process.pid
            pids = _family(supervisor, count)
            ours, peer = interleave(plan.pairs, lambda pids=pids: _sample_us(pids), lambda pids=pids: _psutil_us(pids))
            yield timing_row(f"memory, one sample of {count} processes / psutil", ours, peer, "us")
            share = _share(pids, 4 * plan.window_s)
            what = f"memory, sampler's share of one core, {count} processes grow"
            yield Row(what, f"{share:.2%}", "-", "-", f"< {_GOAL:.1%}", met(share < _GOAL))
    yield Note("one sample: resident, peak, swap, threads, descriptors of each, control groups, the machine; psutil:")
    yield Note("resident, threads, descriptors of each. The share counts waking up, and the burst of the first moments")


def _share(pids: list[int], window_s: float) -> float:
    """As the supervisor does it: whenever a sample is due."""
    begun, before = time.monotonic(), time.thread_time()
    sampler = Sampler(time.monotonic_ns())
    while time.monotonic() < begun + window_s:
        time.sleep(max(0.0, sampler.due - time.monotonic()))
        sampler.sample(pids)
    return (time.thread_time() - before) / (time.monotonic() - begun)


def _family(supervisor: int, count: int) -> list[int]:
    main = [pid for name in ("python", "python3") for pid in children(supervisor, name) if _is_growing(pid)]
    found = [*main, *(child.pid for pid in main for child in psutil.Process(pid).children())]
    return found[:count]


def _is_growing(pid: int) -> bool:
    return b"kept" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[2]


def _sample_us(pids: list[int]) -> float:
    sampler = Sampler(time.monotonic_ns())
    sampler.sample(pids)  # limits and groups are read at first sight only
    return _each_us(lambda: sampler.sample(pids))


def _psutil_us(pids: list[int]) -> float:
    processes = [psutil.Process(pid) for pid in pids]

    def look() -> None:
        for process in processes:
            with process.oneshot():
                process.memory_info()
                process.num_threads()
                process.num_fds()

    return _each_us(look)


def _each_us(look: Callable[[], None]) -> float:
    before = time.thread_time()
    for _ in range(_SAMPLES):
        look()
    return (time.thread_time() - before) / _SAMPLES * 1e6


MEMORY_ROWS = {"memory": measure_memory}
