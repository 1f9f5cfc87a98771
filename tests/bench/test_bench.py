"""The benchmark itself works: it prints its table, and a measurement that failed is told and gives status 1."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import __main__ as bench
from tests.bench import measure

_ROOT = Path(__file__).parents[2]


def test_a_quick_run_prints_its_rows():
    words = [
        sys.executable,
        "-m",
        "tests.bench",
        "--quick",
        "version",
        "printing",
        "threads",
        "still",
        "listing",
        "look",
        "merge",
        "npz",
        "cores",
        "hosts",
    ]
    done = subprocess.run(words, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "`harness --version` / `python -c pass`" in done.stdout
    assert "<= 3" in done.stdout
    assert "lines by print()" in done.stdout
    assert "thread made and joined, each of 200" in done.stdout
    assert "stood still in a crash, 8 threads / 4" in done.stdout
    assert "take_census, from outside / threadpool_info()" in done.stdout
    assert "look, 8 threads, stopped / py-spy dump --native" in done.stdout
    assert "kept compressed / copied" in done.stdout or "not measured: core_pattern" in done.stdout
    assert "numpy's list of names" in done.stdout
    assert "attach to 32 hosts / 1" in done.stdout and "256 hosts, computed from that" in done.stdout
    assert "1000 stacks of 60 frames merged and drawn / 100" in done.stdout


def test_an_unknown_row_is_refused():
    words = [sys.executable, "-m", "tests.bench", "nonsense"]
    done = subprocess.run(words, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no such row: nonsense" in done.stderr


def test_a_failed_measurement_is_told(monkeypatch, capsys):
    def fail(plan):
        measure.run([sys.executable, "-c", "raise SystemExit(7)"])
        yield

    monkeypatch.setitem(bench.ROWS, "version", fail)
    assert bench.print_rows("version", bench.QUICK) is False
    assert "MEASUREMENT FAILED" in (said := capsys.readouterr().out)
    assert "exit status 7" in said


def test_lost_output_fails_the_measurement():
    command = [sys.executable, "-c", "print('x' * 9)"]
    assert measure.stream(command, 10).flow_s >= 0
    with pytest.raises(measure.MeasurementFailed, match="10 bytes arrived, 11 were written"):
        measure.stream(command, 11)
