"""Three hundred looks at a training and at a server under load: both get the results that nobody's eyes would see."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.processes import DEADLINE_S

HERE = Path(__file__).with_name("observed")
LOOKERS, ROUNDS = 3, 50  # each round is a look at both
TEST_DEADLINE_S = 400
LOOK = """
import sys
from harness.capture.living.look import take_look
for _ in range(int(sys.argv[1])):
    look = take_look([int(word) for word in sys.argv[2:]], 0.3)
    assert not [one.ended for one in look.processes if one.ended], look
"""


def start(program: str) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, str(HERE / program)], **pipes, text=True)
    assert process.stderr and process.stderr.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> list[str]:
    """What it told, when its stdin has ended."""
    out, err = process.communicate("", timeout=4 * DEADLINE_S)
    assert process.returncode == 0, err
    return out.splitlines()


def test_three_hundred_looks_change_no_result(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    programs = ("training.py", "server.py")
    alone = [set(end(start(program))) for program in programs]
    seen = [start(program) for program in programs]
    # What they tell must not fill their pipes.
    words = [sys.executable, "-c", LOOK, str(ROUNDS), *(str(process.pid) for process in seen)]
    lookers = [subprocess.Popen(words, stderr=(tmp_path / f"{n}").open("wb")) for n in range(LOOKERS)]
    statuses = [looker.wait(TEST_DEADLINE_S) for looker in lookers]
    told = [end(process) for process in seen]
    assert statuses == [0] * LOOKERS, [(tmp_path / f"{n}").read_text() for n in range(LOOKERS)]
    assert [set(lines) for lines in told] == alone
