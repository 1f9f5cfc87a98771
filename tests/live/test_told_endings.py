"""What a Python program tells as it leaves is told without its noticing: its own audit hooks hear nothing more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

DEADLINE_S = 60
PROGRAM = """
import sys
class Loud(ValueError):
    def __str__(self):
        print("str was called")
        return "loud"
def fail(depth):
    if depth:
        fail(depth - 1)
    raise Loud("bad row 7")
def hear(event, arguments):
    if heard is not None:
        heard.append(event)
def end(kind, value, traceback):
    global heard
    said, heard = heard, None
    print(said)
heard = []
sys.excepthook = end
sys.addaudithook(hear)
fail(3)
"""


def run(*words: str, tmp_path: Path) -> tuple[int, str]:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [*words, sys.executable, str(tmp_path / "program.py")],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_an_exception_is_told_with_its_lines_and_the_programs_own_hooks_hear_what_they_hear_without(
    tmp_path: Path,
) -> None:
    verdict = tmp_path / "verdict.json"
    harness = (sys.executable, "-m", "harness", "run", "--verdict", str(verdict), "--")
    alone, beside = run(tmp_path=tmp_path), run(*harness, tmp_path=tmp_path)
    assert alone == beside
    assert "sys.excepthook" in alone[1] and "str was called" not in beside[1]
    case = Path(json.loads(verdict.read_text())["case"])
    (told,) = json.loads((case / "evidence.json").read_text())["uncaught"]
    lines = PROGRAM.splitlines()
    assert told["type"] == "Loud"
    first, second, last = told["lines"]
    assert (lines[first - 1], lines[second - 1].strip(), lines[last - 1].strip()) == (
        "fail(3)",
        "fail(depth - 1)",
        'raise Loud("bad row 7")',
    )
