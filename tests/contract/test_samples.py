"""The samples in the documentation are what the program prints, but for numbers that differ in every run.

A sample is marked in the page: `<!-- sample: harness COMMAND -->`, with `| hang: NAME` where a program of the zoo is
looked at, whose process is PID. `<!-- made by: … -->` marks one that was printed once, and is not compared.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.builders.hang_driver import HANGS, start
from tests.builders.literals import SCENARIOS, read_literals

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
SAMPLE = re.compile(
    r"<!-- sample: harness (?P<command>.+?)(?: \| hang: (?P<hang>\w+))? -->\n```\w+\n(?P<text>.*?)```\n", re.DOTALL
)
SHORTENED = re.compile(r"<!-- shortened: (?P<page>\S+) -->\n```text\n(?P<text>.*?)```\n", re.DOTALL)
# Before and after: what differs between two runs or two machines. Where lines break depends on it, so they are joined.
DIFFERS = (
    # The C library is each machine's own, and has names for its inner functions only where its debug symbols are.
    (r"faulting image: \S+ (\S+/libc\.so\.6) \(libc6 \S+\)", r"faulting image: raise \1 (libc6)"),
    (r"\b(torch \d+\.\d+\.\d+)\+\w+", r"\1"),  # which build it is belongs to the index
    (r"pid \d+", "pid 4711"),
    (r"\bMainThread \(\d+\)", "MainThread (4711)"),
    (r"\bjournal-writer \(\d+\)", "journal-writer (4712)"),
    (r"stack of \d+/\d+", "stack of 4711/4712"),
    (r"Python \d+\.\d+\.\d+\w*", "Python 3.11.7"),
    (r"\d+\.\d s\b", "0.1 s"),
    (r"\d+\.\d\d s\b", "0.25 s"),
    (r"\d+ samples", "10 samples"),
    (r"\d+\.\d GiB can be had", "20.6 GiB can be had"),
    (r"/tmp/\w+/\w+/venv/", "/tmp/a1b2c3d4/tmp5e6f7a8b/venv/"),
    (r"native stack of \d+ and (.*) of \d+ threads", r"native stack of 3 and \1 of 3 threads"),
    (r"not seen .*? ruled out", "ruled out"),  # where cores go is the machine's own, what may be seen is the user's
    (r"… and \d+ more frames", "… and 65 more frames"),
    (r"peak memory [\d.]+ of [\d.]+ GiB", "peak memory 0.02 of 23.5 GiB"),
    (r"memory peak \d.*? grounds", "memory peak 160 MiB; the limit is 23.5 GiB (this machine's memory) grounds"),
    (r"case( +)\S+", r"case\1~/.local/state/harness/cases/20261116T014212-a41f"),
)


class Sample(NamedTuple):
    page: Path
    command: str
    hang: str | None
    text: str


def list_samples() -> list[Sample]:
    pages = sorted((ROOT / "docs" / "pages").rglob("*.md"))
    return [Sample(page, *found.groups()) for page in pages for found in SAMPLE.finditer(page.read_text())]


def normalise(report: str) -> str:
    report = " ".join(report.split())
    for pattern, same in DIFFERS:
        report = re.sub(pattern, same, report)
    return report


@pytest.fixture
def place() -> Iterator[Path]:
    """The report has its path, so it looks the same each time."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="") as directory:
        yield Path(directory)


def run(command: str, cwd: Path, place: Path) -> str:
    """What the user sees of it: the report of `run` is on stderr, below what the command printed."""
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("COLUMNS", "OMP_WAIT_POLICY")},
        "HARNESS_CASES": str(place / "cases"),
        "TMPDIR": str(place),
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": str(ROOT),
    }
    words = [sys.executable, "-m", "harness", *shlex.split(command)]
    result = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    return result.stderr[result.stderr.index("harness: ") :] if words[3] == "run" else result.stdout


def print_report(sample: Sample, place: Path) -> str:
    if sample.hang is None:
        return run(sample.command, SCENARIOS if sample.command.startswith("run ") else place, place)
    with start(HANGS / f"{sample.hang}.py", sys.executable, False, place) as process:
        return run(re.sub(r"\bPID\b", str(process.pid), sample.command), place, place)


def skip_without(program: Path) -> None:
    literals = read_literals(program)
    for module in literals.get("NEEDS", ()):
        pytest.importorskip(module)
    for file in literals.get("NEEDS_FILES", ()):
        if not Path(file).exists():
            pytest.skip(f"needs {file}")


@pytest.mark.parametrize("sample", list_samples(), ids=lambda sample: f"{sample.page.stem}: {sample.command}")
def test_a_sample_is_what_the_program_prints(sample: Sample, place: Path) -> None:
    if sample.command.startswith("run "):
        skip_without(SCENARIOS / sample.command.split()[-1])
    if sample.command.startswith("npz "):
        write_arrays(place / sample.command.split()[-1])
    assert normalise(sample.text) == normalise(print_report(sample, place))


def write_arrays(path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    numpy.savez(path, X=numpy.zeros((2000, 100, 64), "f4"), y=numpy.arange(2000))


def test_there_are_samples_and_a_changed_one_would_be_seen() -> None:
    assert len(list_samples()) >= 4
    for sample in list_samples():
        first = re.search(r"[a-z]{5,}", sample.text)
        assert first is not None
        assert normalise(sample.text.replace(first[0], "changed")) != normalise(sample.text)


def test_the_readme_shows_lines_of_a_whole_sample_in_their_order() -> None:
    found = SHORTENED.search(README.read_text())
    assert found is not None
    whole = next(sample.text for sample in list_samples() if sample.page == ROOT / found["page"])
    lines = iter(whole.splitlines())
    missing = [line for line in found["text"].splitlines() if line.strip() != "…" and line not in lines]
    assert not missing
