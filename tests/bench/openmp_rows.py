"""`harness openmp` against threadpoolctl: how long a look takes, from inside, from outside and at files on disk.

threadpoolctl asks what is loaded into its own process, so for an environment its price is that of the imports.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from harness.capture.files.interpreter import Installed, ask_interpreter
from harness.capture.files.scan_cache import Memory
from harness.capture.openmp.live_census import take_census
from tests.bench import targets
from tests.bench.child import own_cache, start
from tests.bench.measure import HARNESS, PYTHON, environment, interleave, require, run
from tests.bench.sight_rows import NO_PEER, measure_sight
from tests.bench.table import Note, Plan, Row, met

_ANSWERS = (0, 10, 11)  # no conflict, conflict, risk
_IMPORTED = ("torch", "faiss", "scipy", "sklearn")
_ASK = "import threadpoolctl, {}; print(threadpoolctl.threadpool_info())"
_MB = 1e6


def measure_listing(plan: Plan) -> Iterator[Row | Note]:
    if importlib.util.find_spec("threadpoolctl") is None:
        yield Note(NO_PEER)
        return
    with own_cache(), start(targets.LIST, plan.repeats * 10) as child:
        (ours, images_only, peer, kept), seen, theirs, images, calls = child.read()
        first_us, *outside = [_census_us(child.pid) for _ in range(plan.repeats + 1)]
    require(seen == theirs, f"the OpenMP runtimes differ: {seen} and {theirs}")
    # The goal stands where both answer the same question; who calls which threadpoolctl does not tell.
    row = _faster_row("listing from inside, images only / threadpool_info()", images_only, peer)
    yield row._replace(goal=">= 5 x", met=met(median(peer) / median(images_only) >= 5))
    yield _faster_row("listing from inside, images and calls / threadpool_info()", ours, peer)
    yield _faster_row("listing from inside, images only / a controller kept", images_only, kept)
    yield _faster_row("take_census, from outside / threadpool_info()", outside, peer)
    yield Note(f"{len(ours)} calls each; torch, faiss and numpy loaded, {images} images, {calls} OpenMP calls followed")
    yield Note(f"fastest call: {min(ours):.0f}, {min(images_only):.0f} without the calls, {min(peer):.0f} us")
    yield Note(f"the same {len(seen)} OpenMP runtimes from both; threadpoolctl adds BLAS and numbers of threads,")
    yield Note("which the listing leaves out and the census has; a kept controller does not see what was loaded since")
    yield Note(f"the first census, nothing remembered of the files: {first_us / 1e3:.0f} ms")


def _census_us(pid: int) -> float:
    begun = time.perf_counter_ns()
    take_census(pid)
    return (time.perf_counter_ns() - begun) / 1e3


def _faster_row(what: str, ours: list[float], peer: list[float]) -> Row:
    times = median(peer) / median(ours)
    ratio = f"{times:.1f} x faster" if times >= 1 else f"{1 / times:.1f} x slower"
    return Row(what, f"{median(ours):.0f} us", f"{median(peer):.0f} us", ratio)


def measure_scan(plan: Plan) -> Iterator[Row | Note]:
    paths = Installed(ask_interpreter(PYTHON), Memory(None)).files
    with own_cache() as cache:
        figures = interleave(plan.stream_pairs, lambda: _cold_s(PYTHON, cache), lambda: _scan_s(PYTHON), _import_s)
        for what, ours, goal_s in (("own cache removed", figures[0], 3), ("unchanged", figures[1], 0.3)):
            yield _scan_row(what, ours, figures[2])._replace(goal=f"< {goal_s} s", met=met(median(ours) < goal_s))
        blocks = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock
        evicted = [_evicted_s(PYTHON, cache, paths) for _ in range(plan.stream_pairs)]
        blocks = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock - blocks
        yield _scan_row("own cache and the kernel's removed", evicted, figures[2])
        start_s = median(run([PYTHON, "-c", "pass"]).wall_s for _ in range(plan.repeats))
        read = f"{blocks * 512 / len(evicted) / _MB:.0f} MB of them from disk in the third row"
        yield Note(f"{_describe(paths)}, {read}")
        yield Note(f"peer: import {', '.join(_available())}, then threadpool_info()")
        yield Note(f"lowest to highest, in s: {_range(figures[0])} cold, {_range(figures[1])} unchanged")
        yield Note(f"`python -c pass` takes {start_s:.2f} s of each, twice: ours, and the interpreter that is asked")
        yield from _growth_rows(plan, cache)


def _growth_rows(plan: Plan, cache: str) -> Iterator[Row | Note]:
    """Real copies: the names of one file, however many, are read once."""
    package = Path(sysconfig.get_path("platlib"), "scipy")
    if not package.exists():
        yield Note("growth: not measured; needs scipy")
        return
    with tempfile.TemporaryDirectory(prefix="harness-bench-") as folder:
        pythons = {times: _make_environment(Path(folder, str(times)), package, times) for times in plan.copies}
        measures = [(lambda p=p: _cold_s(p, cache), lambda p=p: _scan_s(p)) for p in pythons.values()]
        figures = interleave(plan.pairs, *(measure for pair in measures for measure in pair))
        files = {times: Installed(ask_interpreter(p), Memory(None)).files for times, p in pythons.items()}
        described = "; ".join(f"{times} x: {_describe(paths)}" for times, paths in files.items())
    cold, unchanged = (dict(zip(pythons, map(median, rows), strict=True)) for rows in (figures[::2], figures[1::2]))
    for what, by_times in (("own cache removed", cold), ("unchanged", unchanged)):
        few, *others = by_times.items()
        for times, wall_s in others:
            cells = (f"{wall_s:.2f} s", f"{few[1]:.2f} s", f"{wall_s / few[1]:.2f}")
            yield Row(f"openmp --python, {times} x the files / {few[0]} x, {what}", *cells)
    yield Note(described)
    few, many = min(files), max(files)
    each_ms = [(s[many] - s[few]) / (len(files[many]) - len(files[few])) * 1e3 for s in (cold, unchanged)]
    yield Note(f"for each further file {each_ms[0]:.2f} ms, {each_ms[1]:.2f} ms when unchanged")


def _make_environment(prefix: Path, package: Path, times: int) -> str:
    """Only the native files, as old as they are; the folders too, for what was just made is not remembered."""
    run([PYTHON, "-m", "venv", "--without-pip", str(prefix)])
    (site,) = prefix.glob("lib/python*/site-packages")
    for number in range(times):
        for source in package.rglob("*.so"):
            target = site / f"copy{number}" / source.relative_to(package)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    for path in [site, *site.rglob("*")]:
        if path.is_dir():
            os.utime(path, (1, 1))
    return str(prefix / "bin/python")


def _cold_s(python: str, cache: str) -> float:
    shutil.rmtree(Path(cache, "harness"), ignore_errors=True)
    return _scan_s(python)


def _evicted_s(python: str, cache: str, paths: list[str]) -> float:
    """The kernel keeps what somebody has mapped."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    return _cold_s(python, cache)


def _scan_s(python: str) -> float:
    begun = time.perf_counter()
    command = [*HARNESS, "openmp", "--python", python]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    wall_s = time.perf_counter() - begun
    require(done.returncode in _ANSWERS, f"{' '.join(command)}: exit status {done.returncode}: {done.stderr[-300:]}")
    return wall_s


def _import_s() -> float:
    return run([PYTHON, "-c", _ASK.format(", ".join(_available()))]).wall_s


def _available() -> list[str]:
    return [name for name in _IMPORTED if importlib.util.find_spec(name)]


def _scan_row(what: str, ours: list[float], peer: list[float]) -> Row:
    times = median(peer) / median(ours)
    cells = (f"{median(ours):.2f} s", f"{median(peer):.2f} s", f"{times:.1f} x faster")
    return Row(f"openmp --python, here: {what}", *cells)


def _range(figures: list[float]) -> str:
    return f"{min(figures):.2f} to {max(figures):.2f}"


def _describe(paths: list[str]) -> str:
    sizes = {(status.st_dev, status.st_ino): status.st_size for status in map(os.stat, paths)}
    return f"{len(sizes)} native files, {sum(sizes.values()) / _MB:.0f} MB"


OPENMP_ROWS = {"listing": measure_listing, "sight": measure_sight, "scan": measure_scan}
