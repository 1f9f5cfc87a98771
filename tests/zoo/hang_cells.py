"""One look at a program of the hang zoo as cells: what it declares, what was told, whether that is true.

Of the peers only the place can be asked: they show stacks, and judge nothing.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.builders.hang_driver import Hang, start
from tests.zoo.cells import Cell
from tests.zoo.hang_judging import EXIT, check_fault, expect, look_at, read
from tests.zoo.peers import Told

_DEADLINE_S = 60
_FAULT = 10
_PEERS = {
    "pystack": ["pystack", "remote", "--no-color", "--native-all"],
    "py-spy": ["py-spy", "dump", "--native", "--pid"],
}


def judge_look(
    path: Path, twin: str, literals: dict[str, Any], folder: Path, python: str = sys.executable
) -> tuple[dict[str, Cell], bool]:
    """The cells, and whether the verdict claims proof."""
    control = twin == "control"
    expected = literals["CONTROL"] if control else expect(literals, python)
    with start(path, python, control, folder) as hang:
        document = read(look_at(hang.pid, folder / "cases"))
        verdict, kinds = document["verdict"], (expected["kind"], *expected.get("weaker", ()))
        cells = {"kind": Cell(expected["kind"], verdict["kind"], verdict["kind"] in kinds)}
        if verdict["kind"] == expected["kind"] and "status" in expected:
            cells["status"] = Cell(expected["status"], verdict["status"], verdict["status"] == expected["status"])
        if functions := list_functions(expected):
            told = (verdict["user_frame"] or {}).get("function")
            cells["line"] = Cell(" or ".join(functions), told, told in functions)
        if not control:
            cells["all asserted"] = judge_all(path, expected, hang, document)
    return cells, verdict["status"] == "established"


def list_functions(expected: dict[str, Any]) -> list[str]:
    """Any member of a ring may be named."""
    members = expected.get("cycle") or [{"function": expected.get("python_function")}]
    return [member["function"] for member in members if member["function"]]


def judge_all(path: Path, expected: dict[str, Any], hang: Hang, document: dict[str, Any]) -> Cell:
    try:
        check_fault(path, expected, hang, document)
    except AssertionError as error:
        return Cell("holds", f"{document['verdict']['headline']} {error}", False)
    return Cell("holds", "holds", True)


def is_false_alarm(twin: str, cells: dict[str, Cell]) -> bool:
    """A healthy twin is told to be at fault."""
    return twin == "control" and not cells["kind"].true and EXIT.get(str(cells["kind"].told), _FAULT) == _FAULT


def is_false_progress(twin: str, cells: dict[str, Cell]) -> bool:
    return twin == "fault" and not cells["kind"].true and cells["kind"].told == "progressing"


def ask_peer(name: str, path: Path, twin: str, literals: dict[str, Any], folder: Path) -> tuple[dict[str, Cell], bool]:
    """Whether the function in question stands anywhere in its text, of the process that is stuck."""
    command = [*_PEERS[name]]
    command[0] = str(Path(sys.executable).with_name(command[0]))
    functions = list_functions(literals["EXPECT"])
    with start(path, sys.executable, False, folder) as hang:
        words = [*command, str(hang.stuck_pid)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=_DEADLINE_S)
        except subprocess.TimeoutExpired:
            return {}, False
        text = done.stdout
    named = any(Told(None, text).names_function(function) or f" {function} (" in text for function in functions)
    return {"line": Cell(" or ".join(functions), "in its text" if named else None, named)} if functions else {}, False
