"""`make demo`: real deaths under supervision, each with the report a user gets.

Not a test: it shows. It fails only when a supervised command did not end as its scenario declares.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.zoo.literals import SCENARIOS, read_literals

SHOWN = (
    "duplicate_openmp_two_tower",
    "worker_torch_dataloader_segfault",
    "memory_double_free",
    "python_exception_main",
)


def show(name: str, environment: dict[str, str]) -> bool:
    path = SCENARIOS / f"{name}.py"
    missing = [file for file in read_literals(path).get("NEEDS_FILES", ()) if not Path(file).exists()]
    if missing:
        print(f"\n(not shown: {name} needs {missing[0]})")
        return True
    print(f"\n$ harness run python {path.relative_to(Path.cwd())}", flush=True)
    status = subprocess.run(
        [sys.executable, "-m", "harness", "run", sys.executable, str(path)], env=environment, check=False
    ).returncode
    print(f"[exit status {status}, the command's own]", flush=True)
    return bool(status == read_literals(path)["EXPECT"]["exit"])


def main() -> int:
    os.chdir(Path(__file__).parents[1])
    with tempfile.TemporaryDirectory(prefix="harness-demo-") as cases:
        environment = {**os.environ, "HARNESS_CASES": cases, "TMPDIR": cases}
        as_declared = [show(name, environment) for name in SHOWN]
        print(f"\n$ harness openmp --python {sys.executable}", flush=True)
        subprocess.run([sys.executable, "-m", "harness", "openmp", "--python", sys.executable], check=False)
        return 0 if all(as_declared) else 1


if __name__ == "__main__":
    raise SystemExit(main())
