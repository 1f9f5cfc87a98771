"""From the fault to the answer: the crash link against "core written, then gdb" and "core written, then pystack".

The clock starts in the dying process, just before the fault, and stops when the answer is printed. Needs a core_pattern
that writes a file (core, in the working directory); without one the peers cannot be measured and that is said.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.bench.measure import PYTHON, RUN, environment, require
from tests.bench.rows import Note, Plan, Row

_GIB = 1024**3
# The memory is filled, so that it is resident and belongs into a core.
_VICTIM = """
import ctypes, sys, threading, time
ballast = b"x" * int(sys.argv[1])
for _ in range(int(sys.argv[2])):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print(time.monotonic(), flush=True)
ctypes.string_at(0)
"""


def measure_crash(plan: Plan) -> Iterator[Row | Note]:
    sizes = [0.1] if plan.steps < 100 else [0.5, 2.0, 6.0]
    ours = {size: median(_linked_s(size, 3) for _ in range(3)) for size in sizes}
    for size in sizes:
        for name, command in _peers():
            peer, core_bytes = _core_s(size, command)
            goal, met = (">= 10 x", "yes" if peer / ours[size] >= 10 else "no") if size == 2.0 else ("-", "")
            yield Row(
                f"crash to answer, {size} GiB resident, against core + {name}",
                f"{ours[size]:.2f} s",
                f"{peer:.2f} s (core {core_bytes / _GIB:.2f} GiB)",
                f"{peer / ours[size]:.1f} x faster",
                goal,
                met,
            )
    if len(sizes) > 1:
        ratio = ours[6.0] / ours[0.5]
        cells = (f"{ours[6.0]:.2f} s", f"{ours[0.5]:.2f} s", f"{ratio:.2f}")
        yield Row("crash to answer, 6 GiB / 0.5 GiB", *cells, "<= 1.3", "yes" if ratio <= 1.3 else "no")
    few = _linked_s(0.1, 4)
    for threads in (40, 400):
        many = _linked_s(0.1, threads)
        yield Row(f"crash to answer, {threads} threads / 4", f"{many:.2f} s", f"{few:.2f} s", f"{many / few:.2f}")


def _linked_s(size_gib: float, threads: int) -> float:
    """Until harness has printed its report and left."""
    words = [PYTHON, "-c", _VICTIM, str(int(size_gib * _GIB)), str(threads)]
    done = subprocess.run([*RUN, *words], capture_output=True, text=True, env=environment(), check=False)
    ended = time.monotonic()
    require(done.returncode == 139 and "siginfo SEGV_MAPERR" in done.stderr, f"no crash was seen: {done.stderr[-300:]}")
    return ended - float(done.stdout)


def _peers() -> list[tuple[str, list[str]]]:
    tools = {
        "gdb": ["gdb", "-nx", "-batch", "-ex", "thread apply all bt", PYTHON, "core"],
        "pystack": [str(Path(PYTHON).with_name("pystack")), "core", "core", "--native-all"],
    }
    return [(name, command) for name, command in tools.items() if shutil.which(command[0])]


def _core_s(size_gib: float, tool: list[str]) -> tuple[float, int]:
    """Bare, with cores allowed: until the tool has read the core. Also the size of the core on disk."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    require(pattern == "core", f"core_pattern is {pattern!r}, so there is no core file to compare with")
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/tmp")) as folder:
        words = [PYTHON, "-c", _VICTIM, str(int(size_gib * _GIB)), "3"]
        command = ["sh", "-c", 'ulimit -c unlimited; exec "$@"', "sh", *words]
        crashed = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment(), check=False)
        subprocess.run(tool, cwd=folder, capture_output=True, env=environment(), check=False)
        ended = time.monotonic()
        core = next(iter(Path(folder).glob("core*")), None)
        require(core is not None, "no core was written")
        assert core is not None
        return ended - float(crashed.stdout), core.stat().st_blocks * 512


CRASH_ROWS = {"crash": measure_crash}
