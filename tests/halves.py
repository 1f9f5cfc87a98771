"""`make test`: every test in two halves, in parallel and one by one; the second runs whatever the first said.

`python -m tests.halves WORKERS [argument of pytest …]`. Says first which interpreters are here, and at the end how both
halves went and what failed; what ran and what was skipped goes to build/lane.json. Not a test.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.builders.lanes import INTERPRETERS
from tests.skips import LANE, name_case, write_lane

# Of the live tests those that touch only processes of their own, and measure nothing.
BESIDE = ("locks", "openmp_command", "openmp_fix", "unflushed", "unwind", "waits")
_LIVE = sorted(str(path) for path in Path("tests/live").glob("test_*.py") if path.stem[5:] not in BESIDE)
# What changes the machine's settings or loads it, looks at all of its processes or at time is run one by one.
ALONE = (*_LIVE, "tests/bench", "tests/zoo/test_loaded.py", "tests/zoo/test_hangs.py")
PASSED, FAILED, NOTHING_SELECTED = 0, 1, 5


class Half(NamedTuple):
    name: str
    status: int
    counts: str
    failed: list[str]


def run_half(name: str, words: list[str], folder: Path) -> Half:
    """Under the terminal's eyes; what is told again at the end comes from pytest's own XML."""
    print(f"\n== {name}", flush=True)
    begun, report = time.monotonic(), folder / f"{name}.xml"
    status = subprocess.run([sys.executable, "-m", "pytest", f"--junitxml={report}", *words], check=False).returncode
    counts, failed = read_report(report) if report.exists() else ("no report", [])
    return Half(name, status, f"{counts}, in {(time.monotonic() - begun) / 60:.1f} min, exit status {status}", failed)


def read_report(path: Path) -> tuple[str, list[str]]:
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    skipped = sum(case.find("skipped") is not None for case in cases)
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    passed = len(cases) - skipped - len(failed)
    return f"{passed} passed, {len(failed)} failed, {skipped} skipped", [name_case(case) for case in failed]


def main() -> int:
    workers, *words = sys.argv[1:]
    print("interpreters: " + ", ".join(f"{lane} ({python})" for lane, python in INTERPRETERS.items()), flush=True)
    with tempfile.TemporaryDirectory(prefix="harness-halves-") as folder:
        halves = [run_half("in parallel", ["-n", workers, *words, *(f"--ignore={one}" for one in ALONE)], Path(folder))]
        if halves[0].status in (PASSED, FAILED, NOTHING_SELECTED):  # else it was interrupted, or pytest is broken
            halves.append(run_half("one by one", [*words, *ALONE], Path(folder)))
        write_lane(sorted(Path(folder).glob("*.xml")), LANE)
    print()
    for half in halves:
        print(f"{half.name}: {half.counts}")
        for name in half.failed:
            print(f"  failed: {name}")
    return max((half.status for half in halves if half.status != NOTHING_SELECTED), default=NOTHING_SELECTED)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
