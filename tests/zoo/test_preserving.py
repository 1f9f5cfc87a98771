"""Looking must not change the outcome: each program ends, and prints, under harness exactly as it does bare."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.zoo.literals import read_literals
from tests.zoo.test_zoo import INTERPRETERS, build

PROGRAMS = Path(__file__).with_name("preserving")
DEADLINE_S = 120


def list_runs() -> list:
    runs = []
    for path in sorted(PROGRAMS.glob("*.py")):
        literals = read_literals(path)
        ours = [version for version, python in INTERPRETERS.items() if python == sys.executable]
        versions = ours if literals.get("NEEDS") else [v for v in INTERPRETERS if v in literals.get("VERSIONS", [v])]
        runs += [pytest.param(path, version, id=f"{path.stem}-{version}") for version in versions]
    return runs


def run(command: list[str], environment: dict[str, str]) -> tuple[int, bytes, bytes]:
    """Status as a shell gives it, stdout, stderr without our report."""
    done = subprocess.run(command, env=environment, capture_output=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL)
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return status, done.stdout, done.stderr.partition(b"harness: ")[0]


def without_addresses(text: bytes) -> list[bytes]:
    """faulthandler prints thread idents, which differ in every run."""
    return [line for line in text.splitlines() if b"hread 0x" not in line]


@pytest.mark.parametrize(("path", "version"), list_runs())
def test_same_end_same_output_as_bare(path: Path, version: str, tmp_path: Path, built: Path) -> None:
    literals = read_literals(path)
    for module in literals.get("NEEDS", ()):
        pytest.importorskip(module)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1", "HARNESS_CASES": str(tmp_path)}
    if source := literals.get("BUILD"):
        environment["ZOO_LIB"] = str(build(PROGRAMS / source, literals.get("BUILD_FLAGS", []), built))
    command = [INTERPRETERS[version], str(path)]

    bare = run(command, environment)
    supervised = run([sys.executable, "-m", "harness", "run", "-q", "--", *command], environment)

    assert bare[0] == literals["BARE"]["exit"], bare
    assert supervised[0] == bare[0], supervised
    assert supervised[1] == bare[1]
    assert without_addresses(supervised[2]) == without_addresses(bare[2])
