"""What a core costs: keeping one compressed against copying it, and reading its notes against gdb's look at it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.capture.cores.file import CoreFile
from harness.capture.cores.finding import Found
from harness.capture.cores.keeping import move_core
from tests.bench.measure import PYTHON, require
from tests.bench.table import Note, Plan, Row, timing_row

# Half random floats, a quarter small integers, a quarter never touched: what training jobs hold.
_VICTIM = """
import ctypes, os, random, sys
size = int(sys.argv[1])
noise = bytearray(os.urandom(1 << 20))
held = [bytearray(noise) for _ in range(size // 2 >> 20)]
held.append(b"\\1\\0\\0\\0\\0\\0\\0\\0" * (size // 4 >> 3))
held.append(bytearray(size // 4))
ctypes.string_at(0)
"""


def measure_cores(plan: Plan) -> Iterator[Row | Note]:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    if pattern[:1] in "|@/":
        yield Note(f"not measured: core_pattern is {pattern.strip()}")
        return
    for gib in plan.resident_gib[:2]:
        with tempfile.TemporaryDirectory() as place:
            core = _make_core(Path(place), int(gib * 2**30))
            yield from _measure_one(core, Path(place), gib)


def _make_core(folder: Path, size: int) -> Path:
    command = ["sh", "-c", 'ulimit -c unlimited; exec "$@"', "sh", PYTHON, "-c", _VICTIM, str(size)]
    subprocess.run(command, cwd=folder, capture_output=True, check=False)
    cores = list(folder.glob("core*"))
    require(len(cores) == 1, "no core was written")
    return cores[0]


def _measure_one(core: Path, folder: Path, gib: float) -> Iterator[Row | Note]:
    size = core.stat().st_size
    read_ms = _time_s(lambda: CoreFile(core).close()) * 1e3
    gdb = shutil.which("gdb")
    if gdb:
        look = [gdb, "-nx", "-batch", "-ex", "bt 1", PYTHON, str(core)]
        gdb_ms = _time_s(lambda: subprocess.run(look, capture_output=True, check=False)) * 1e3
        yield timing_row(f"notes of a core, {gib:g} GiB / gdb's look at it", [read_ms], [gdb_ms], "ms")
    copied_s = _time_s(lambda: shutil.copyfile(core, folder / "copy"))
    kept_s = _time_s(lambda: move_core(Found(core, True, core.stat()), folder, 1, 2**40))
    yield timing_row(f"core of {gib:g} GiB kept compressed / copied", [kept_s], [copied_s])
    kept = (folder / "core.1.gz").stat().st_size
    speed = f"{size / kept_s / 1e6:.0f} MB/s on {os.cpu_count()} CPUs"
    yield Note(f"{size / 1e6:.0f} MB became {kept / 1e6:.0f} MB, {speed}")


def _time_s(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


CORE_ROWS = {"cores": measure_cores}
