"""`harness.enable()`: a crash of the calling process is captured, and its limits are what the documentation says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.kept_cases import check_run

CRASH = """
import ctypes, harness
harness.enable()
harness.enable()
def mine_hard_negatives():
    ctypes.string_at(0)
print("enabled", flush=True)
mine_hard_negatives()
"""
LOADER = """
import ctypes, harness
from torch.utils.data import DataLoader, Dataset
harness.enable()
class Broken(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        ctypes.string_at(0)
if __name__ == "__main__":
    list(DataLoader(Broken(), num_workers=1))
"""


def run(program: str, tmp_path: Path) -> tuple[int, str, list[Path]]:
    """Status, stderr (complete: the helper holds it open until it has reported), cases."""
    script = tmp_path / "job.py"
    script.write_text(program)
    environment = {**os.environ, "HARNESS_CASES": str(tmp_path / "cases")}
    with (tmp_path / "stderr").open("wb") as stderr:
        job = subprocess.Popen(
            [sys.executable, script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        _, words = job.communicate(timeout=120)
        stderr.write(words)
    return (
        job.returncode,
        words.decode(),
        sorted((tmp_path / "cases").glob("*")) if (tmp_path / "cases").exists() else [],
    )


def test_a_crash_is_captured_and_the_status_is_that_of_a_bare_run(tmp_path: Path) -> None:
    status, words, cases = run(CRASH, tmp_path)
    assert status == -signal.SIGSEGV
    assert "Segmentation fault" in words and "mine_hard_negatives (job.py:6)" in words
    check_run(cases[0])
    document = json.loads((cases[0] / "verdict.json").read_bytes())
    verdict = document["verdict"]
    assert (verdict["kind"], verdict["status"]) == ("segfault", "established")
    assert Path(verdict["component"]["image"]).name.startswith("_ctypes")
    assert document["outcome"]["si_code"] == "SEGV_MAPERR"


def test_a_process_that_ends_well_leaves_nothing(tmp_path: Path) -> None:
    assert run("import harness\nharness.enable()\n", tmp_path) == (0, "", [])


def test_dataloader_workers_are_not_covered(tmp_path: Path) -> None:
    """Documented: torch replaces our handler there. If this ever fails, the documentation is to be changed."""
    pytest.importorskip("torch")
    status, words, cases = run(LOADER, tmp_path)
    assert status == 1 and "killed by signal: Segmentation fault" in words
    assert cases == []
