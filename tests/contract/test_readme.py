"""The README's sample report is what the program prints, but for numbers that differ in every run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.zoo.literals import SCENARIOS, read_literals

README = Path(__file__).parents[2] / "README.md"
SAMPLE = re.compile(r"<!-- sample: (?P<name>\w+) -->\n```text\n(?P<text>.*?)```\n", re.DOTALL)


def normalise(report: str) -> str:
    """Process numbers, versions, times, sizes, the place of the case; where lines break depends on them.

    The C library is each machine's own, and has names for its inner functions only where its debug symbols are.
    """
    report = " ".join(report.split())
    report = re.sub(r"faulting image: \S+ (\S+/libc\.so\.6) \(libc6 \S+\)", r"faulting image: raise \1 (libc6)", report)
    report = re.sub(r"\b(torch \d+\.\d+\.\d+)\+\w+", r"\1", report)  # which build it is belongs to the index
    report = re.sub(r"pid \d+", "pid 4711", report)
    report = re.sub(r"Python \d+\.\d+\.\d+", "Python 3.11.7", report)
    report = re.sub(r"\d+\.\d s\b", "0.1 s", report)
    report = re.sub(r"\d+\.\d\d s\b", "0.25 s", report)
    report = re.sub(r"/tmp/\w+/\w+/venv/", "/tmp/a1b2c3d4/tmp5e6f7a8b/venv/", report)
    report = re.sub(r"native stack of \d+ and (.*) of \d+ threads", r"native stack of 3 and \1 of 3 threads", report)
    report = re.sub(r"… and \d+ more frames", "… and 65 more frames", report)
    report = re.sub(r"peak memory [\d.]+ of [\d.]+ GiB", "peak memory 0.02 of 23.5 GiB", report)
    memory = "memory peak 160 MiB; the limit is 23.5 GiB (this machine's memory) grounds"
    report = re.sub(r"memory peak \d.*? grounds", memory, report)
    return re.sub(r"case( +)\S+", r"case\1~/.local/state/harness/cases/20261116T014212-a41f", report)


def print_report(name: str, cases: Path) -> str:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="") as place:
        environment = {
            **os.environ,
            "HARNESS_CASES": str(cases),
            "TMPDIR": place,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        command = [sys.executable, "-m", "harness", "run", "python", f"{name}.py"]
        result = subprocess.run(command, cwd=SCENARIOS, env=environment, capture_output=True, text=True, check=False)
    return result.stderr[result.stderr.index("harness: ") :]


def test_sample_is_what_the_program_prints(tmp_path: Path) -> None:
    found = SAMPLE.search(README.read_text())
    assert found is not None
    literals = read_literals(SCENARIOS / f"{found['name']}.py")
    for module in literals.get("NEEDS", ()):
        pytest.importorskip(module)
    for file in literals.get("NEEDS_FILES", ()):
        if not Path(file).exists():
            pytest.skip(f"needs {file}")
    assert normalise(found["text"]) == normalise(print_report(found["name"], tmp_path))
