"""Who sleeps in a loop: a launcher that asks after its children, or somebody who works and sleeps in between."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.capture.living.source.lock_lines import Sources
from harness.capture.living.source.tending import tends_children
from harness.evidence.crash import CrashFrame

LOOPS = {
    "while any(one.is_alive() for one in workers):\n        print('alive')\n        time.sleep(1)": True,
    "while True:\n        if worker.poll() is not None:\n            break\n        time.sleep(1)": True,
    "for worker in workers:\n        while worker.exitcode is None:\n            time.sleep(1)": True,
    "while True:\n        step()\n        time.sleep(1)": False,
    "while worker:\n        def later():\n            worker.poll()\n        time.sleep(1)": False,
    "worker.poll()\n    for step in steps:\n        time.sleep(1)": False,
}


@pytest.mark.parametrize(("loop", "tends"), LOOPS.items())
def test_the_loop_that_it_sleeps_in_tells(tmp_path: Path, loop: str, tends: bool) -> None:
    file = tmp_path / "job.py"
    file.write_text(f"def main(worker, workers, steps):\n    {loop}\n")
    os.utime(file, (0, 0))  # older than this process, or it would not be believed
    number = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "sleep" in text)
    frame = CrashFrame("python", "main", str(file), number)
    assert tends_children([frame], Sources(os.getpid())) is tends


def test_without_a_source_nothing_is_known() -> None:
    assert tends_children([CrashFrame("python", "main", "/nowhere/job.py", 3)], Sources(os.getpid())) is None
