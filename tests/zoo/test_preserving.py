"""Looking must not change the outcome: each program ends, and prints, under harness exactly as it does bare.

With the shim too. Lines that must differ there are declared in the program's SHIM, with the reason.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from tests.builders.lanes import INTERPRETERS, is_further, version_of
from tests.builders.literals import read_literals
from tests.zoo.driver import INJECTIONS, build

PROGRAMS = Path(__file__).with_name("preserving")
DEADLINE_S = 120


def list_runs() -> list:
    runs = []
    for path in sorted(PROGRAMS.glob("*.py")):
        literals = read_literals(path)
        ours = [version for version, python in INTERPRETERS.items() if python == sys.executable]
        wanted = literals.get("VERSIONS")
        lanes = ours if literals.get("NEEDS") else [v for v in INTERPRETERS if not wanted or version_of(v) in wanted]
        runs += [
            pytest.param(path, lane, inject, id=f"{path.stem}-{lane}-{inject}")
            for lane, inject in itertools.product(lanes, INJECTIONS)
            if inject == "preload" or not is_further(lane)
        ]
    return runs


def run(command: list[str], environment: dict[str, str], cwd: Path) -> tuple[int, bytes, bytes, bytes]:
    """Status as a shell gives it, stdout, stderr without our report, our report."""
    done = subprocess.run(
        command, env=environment, capture_output=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL, cwd=cwd
    )
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    own_words, _, report = done.stderr.partition(b"harness: ")
    return status, done.stdout, own_words, report


# faulthandler's C stack (3.14): addresses that differ in every run, and the frame of a handler in front of its own.
C_STACK = ("  Binary file ", "  <truncated")


def without_addresses(text: bytes) -> list[bytes]:
    """faulthandler prints thread idents and addresses, which differ in every run."""
    return [line for line in without_lines(text, []) if b"hread 0x" not in line]


def without_lines(text: bytes, beginnings: list[str]) -> list[bytes]:
    left_out = tuple(map(str.encode, (*beginnings, *C_STACK)))
    return [line for line in text.splitlines(True) if not line.startswith(left_out)]


@cache
def run_bare(path: Path, version: str, library: str | None) -> tuple[int, bytes, bytes, bytes]:
    with tempfile.TemporaryDirectory() as cwd:  # each has a place of its own for a core
        return run([INTERPRETERS[version], str(path)], make_environment(library), Path(cwd))


def make_environment(library: str | None) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
    environment |= {"HARNESS_TELL": "1"}  # else root never has the handlers of native/leave.c
    return {**environment, "ZOO_LIB": library} if library else environment


@pytest.mark.parametrize(("path", "version", "inject"), list_runs())
def test_same_end_same_output_as_bare(path: Path, version: str, inject: str, tmp_path: Path, built: Path) -> None:
    literals = read_literals(path)
    for module in literals.get("NEEDS", ()):
        pytest.importorskip(module)
    source = literals.get("BUILD")
    library = str(build(PROGRAMS / source, literals.get("BUILD_FLAGS", []), built)) if source else None
    words = [sys.executable, "-m", "harness", "run", "-q", "--inject", inject, "--", INTERPRETERS[version], str(path)]

    bare = run_bare(path, version, library)
    supervised = run(words, {**make_environment(library), "HARNESS_CASES": str(tmp_path / "cases")}, tmp_path)

    assert bare[0] == literals["BARE"]["exit"], bare
    assert supervised[0] == bare[0], supervised
    other = literals["SHIM"]["other_lines"] if inject == "shim" and "SHIM" in literals else []
    assert without_lines(supervised[1], other) == without_lines(bare[1], other)
    assert without_addresses(supervised[2]) == without_addresses(bare[2])
