"""What ships with the program agrees with the program: schemas, help texts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from harness.report.schemas import DIRECTORY, build_schemas

ROOT = Path(__file__).parents[2]
HELP = ROOT / "tests" / "data" / "help"


@pytest.mark.parametrize(("file", "text"), build_schemas().items(), ids=lambda value: value[:20])
def test_shipped_schemas_are_those_of_the_types(file: str, text: str) -> None:
    assert (DIRECTORY / file).read_text() == text, "next: python -m harness.report.schemas"


def test_schemas_are_schemas_and_none_is_left_over() -> None:
    assert {path.name for path in DIRECTORY.iterdir()} == set(build_schemas())
    for path in DIRECTORY.iterdir():
        import json

        jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="argparse words its help differently in each Python")
@pytest.mark.parametrize("name", ["", "run", "openmp", "attach", "watch", "repro", "ps", "npz", "doctor"])
def test_help_is_what_was_agreed(name: str) -> None:
    words = [name] if name else []
    command = [sys.executable, "-m", "harness", *words, "--help"]
    environment = {**os.environ, "COLUMNS": "100"}
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
    assert answer == (HELP / f"{'-'.join(['harness', *words])}.txt").read_text()
