"""`make bench`: one table of what supervision costs, as ratios against a peer in the same run.

Never asserts a timing. Exit status 1 only when a measurement itself failed (a wrong exit status, lost output, losses
that differ); the other rows are printed all the same.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys

from tests.bench.core_rows import CORE_ROWS
from tests.bench.crash_rows import CRASH_ROWS
from tests.bench.load_rows import LOAD_ROWS
from tests.bench.look_rows import LOOK_ROWS
from tests.bench.measure import UNSET, MeasurementFailed, adopt_orphans, environment
from tests.bench.memory_rows import MEMORY_ROWS
from tests.bench.npz_rows import NPZ_ROWS
from tests.bench.openmp_rows import OPENMP_ROWS
from tests.bench.remote_rows import REMOTE_ROWS
from tests.bench.rows import ROWS as RUN_ROWS
from tests.bench.table import QUICK, Note, Plan, Row

ROWS = {**RUN_ROWS, **LOAD_ROWS, **CRASH_ROWS, **OPENMP_ROWS, **LOOK_ROWS, **MEMORY_ROWS, **NPZ_ROWS, **CORE_ROWS}
ROWS |= REMOTE_ROWS

_WIDTHS = (60, 25, 24, 32, 9, 4)


def parse_words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small figures, to see that it works")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"only these: {' '.join(ROWS)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.rows) - set(ROWS):
        parser.error(f"no such row: {' '.join(sorted(unknown))}")
    return arguments


def print_row(*cells: str) -> None:
    line = "  ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
    print(line.rstrip(), flush=True)


def print_heading(quick: bool) -> None:
    load = ", ".join(f"{load:.2f}" for load in os.getloadavg())
    print(f"Python {platform.python_version()}, {os.cpu_count()} CPUs, load average {load}, Linux {platform.release()}")
    print(f"Unset for both sides: {', '.join(UNSET)}. Medians; ratio (lowest to highest pair).")
    if quick:
        print("--quick: too short to mean anything.")
    print()
    print_row("what", "ours", "peer", "ratio", "goal", "met")
    print_row(*("-" * width for width in _WIDTHS))


def print_rows(name: str, plan: Plan) -> bool:
    """Whether the measurement could be made."""
    try:
        for item in ROWS[name](plan):
            match item:
                case Row():
                    print_row(*item)
                case Note():
                    print(f"    {item.text}", flush=True)
    except (MeasurementFailed, OSError) as error:
        print(f"{name}: MEASUREMENT FAILED: {error}", flush=True)
        return False
    return True


def main() -> int:
    arguments = parse_words()
    adopt_orphans()
    print_heading(arguments.quick)
    try:
        done = [print_rows(name, QUICK if arguments.quick else Plan()) for name in arguments.rows or ROWS]
    finally:
        shutil.rmtree(environment()["HARNESS_CASES"], ignore_errors=True)
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
