"""What surrounds a command: variables by allow-list, and its script's imports and settings in the order they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.capture.run.gathered.environment import is_python, read_environment, read_scripts
from harness.evidence.run import Process

SCRIPT = """
import os
os.environ["OMP_NUM_THREADS"] = "1"
import torch, json
from numpy.linalg import norm
os.environ.setdefault("MKL_NUM_THREADS", "2")
if norm:
    os.putenv("KMP_BLOCKTIME", "0")
threads = os.environ["OMP_NUM_THREADS"]
def later():
    import faiss
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
other["OMP_NUM_THREADS"] = "1"
"""


def python(*argv: str) -> Process:
    return Process(1, 0, "python", ("python", *argv), "/usr/bin/python3.11", 0.0)


def read(tmp_path: Path, text: str, *argv: str) -> list[tuple[int, str | None, str | None]]:
    (tmp_path / "train.py").write_text(text)
    return [(item.line, item.imports, item.sets) for item in read_scripts([python(*argv)], str(tmp_path))]


def test_statements_come_in_the_order_they_run_and_bodies_of_functions_do_not(tmp_path: Path) -> None:
    assert read(tmp_path, SCRIPT, "-u", "train.py", "--lr", "0.1") == [
        (2, "os", None),
        (3, None, "OMP_NUM_THREADS"),
        (4, "torch", None),
        (4, "json", None),
        (5, "numpy", None),
        (6, None, "MKL_NUM_THREADS"),
        (8, None, "KMP_BLOCKTIME"),
    ]


@pytest.mark.parametrize("argv", [("-c", "import torch"), ("-m", "train"), ("absent.py",), ()])
def test_without_a_script_there_is_nothing_to_read(tmp_path: Path, argv: tuple[str, ...]) -> None:
    assert read(tmp_path, SCRIPT, *argv) == []


def test_a_script_that_does_not_parse_is_no_trouble_of_ours(tmp_path: Path) -> None:
    assert read(tmp_path, "def (:\n", "train.py") == []


@pytest.mark.parametrize(
    ("executable", "expected"),
    [
        ("/usr/bin/python3.11", True),
        ("/x/pypy3", True),
        ("/bin/bash", False),
        ("/opt/python-tool", False),
        (None, False),
    ],
)
def test_an_interpreter_is_known_by_its_file_name(executable: str | None, expected: bool) -> None:
    assert is_python(Process(1, 0, "x", (), executable, 0.0)) is expected


def test_only_allowed_variables_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("MY_OMP_TOKEN", "secret")
    kept = read_environment()
    assert kept["OMP_NUM_THREADS"] == "2"
    assert "secret" not in kept.values()
