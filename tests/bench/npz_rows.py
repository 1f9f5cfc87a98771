"""`harness npz` against numpy: what it costs to know what an archive holds, and how much of it is read for that."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from harness.capture.arrays.archive import read_array_file
from tests.bench.measure import HARNESS, PYTHON, interleave, require, run
from tests.bench.table import Note, Plan, Row, met, timing_row
from tests.builders.sparse_npz import build_sparse

_SHAPE = (35901, 100, 768)
_ASK_NUMPY = "import numpy, sys; print(numpy.load(sys.argv[1]).files)"
_ANSWERS = (0, 10, 11)  # they fit, they do not, barely: this machine decides


def measure_npz(plan: Plan) -> Iterator[Row | Note]:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "train.npz")
        data = build_sparse(path, _SHAPE)
        command = [*HARNESS, "npz", str(path)]
        status = subprocess.run(command, capture_output=True, check=False).returncode
        require(status in _ANSWERS, f"exit status {status}")
        ours, peer = interleave(
            plan.repeats,
            lambda: run(command, status=status).wall_s,
            lambda: run([PYTHON, "-c", _ASK_NUMPY, str(path)]).wall_s,
        )
        before = _read_chars()
        arrays = read_array_file(path).arrays
        read = _read_chars() - before
    require(arrays[0].ram_bytes == data, f"{arrays[0].ram_bytes} bytes, not {data}")
    what = f"`harness npz`, {data / 1e9:.0f} GB sparse / numpy's list of names"
    yield timing_row(what, ours, peer)
    share = Row("bytes read for it", f"{read / 1e3:.0f} kB", f"{data / 1e9:.1f} GB", f"{read / data:.1e}")
    yield share._replace(goal="headers only", met=met(read < 1e6))
    yield Note(f"{median(ours) * 1e3:.0f} ms; numpy's list has names only: a shape costs it the whole array")


def _read_chars() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


NPZ_ROWS = {"npz": measure_npz}
