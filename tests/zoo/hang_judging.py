"""A look at a program of the hang zoo, and what the program declares held against what it told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.builders.hang_driver import Hang, find_line
from tests.builders.kept_cases import check_look, read_document
from tests.builders.lanes import has_symbols

LOOK_S = "4"
DEADLINE_S = 60
EXIT = {"progressing": 0, "waiting": 11, "busy-python": 11, "busy-native": 11}


def expect(literals: dict[str, Any], python: str) -> dict[str, Any]:
    """STRIPPED says what differs for an interpreter without symbols."""
    return {**literals["EXPECT"], **({} if has_symbols(python) else literals.get("STRIPPED", {}))}


def look_at(pid: int, cases: Path) -> subprocess.Popen[bytes]:
    options = ["--for", LOOK_S, "--json", "--cases", str(cases)]
    command = [sys.executable, "-m", "harness", "attach", str(pid), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def read(look: subprocess.Popen[bytes]) -> dict[str, Any]:
    out, err = look.communicate(timeout=DEADLINE_S)
    document: dict[str, Any] = json.loads(out or b"null")
    assert document is not None, err.decode()
    check_status(document, look.returncode)
    check_look(Path(document["case"]))
    assert read_document(Path(document["case"], "verdict.json")) == document
    return document


def check_status(document: dict[str, Any], status: int) -> None:
    """What waits for somebody who moves, or who may only be slow, is not decided."""
    kind, moving = document["verdict"]["kind"], document["progress"]["moving"]
    undecided = (kind == "blocked-collective" and moving) or document["verdict"]["status"] == "hypothesis"
    assert status == (11 if undecided else EXIT.get(kind, 10)), document["verdict"]


def check_fault(path: Path, expected: dict[str, Any], hang: Hang, document: dict[str, Any]) -> None:
    verdict = document["verdict"]
    exact = verdict["kind"] == expected["kind"]
    assert exact or verdict["kind"] in expected.get("weaker", ()), verdict
    if not exact:
        return
    if "moving" in expected:
        assert document["progress"]["moving"] is expected["moving"], document["progress"]
    if "status" in expected:
        assert verdict["status"] == expected["status"], verdict
    assert verdict["process"]["role"] == expected["pid_role"], verdict
    if verdict["kind"] != "blocked-collective":
        assert verdict["process"]["pid"] == hang.stuck_pid, verdict
    check_place(path, expected, verdict)
    told = " ".join([verdict["headline"], *(ground["fact"] for ground in verdict["grounds"])])
    for word in (*expected.get("facts", ()), *map(str, hang.ready.get("facts", ()))):
        assert word in told, (word, told)
    if "rising_local" in expected:
        names, counter = expected["rising_local"], document["progress"]["counter"] or ""
        assert any(name in counter for name in ([names] if isinstance(names, str) else names)), document["progress"]
    if "unflushed_start" in expected:
        assert document["progress"]["unflushed_stdout"].startswith(expected["unflushed_start"]), document["progress"]
    if "unflushed" in expected:
        assert document["progress"]["unflushed_stdout"] == expected["unflushed"], document["progress"]


def check_place(path: Path, expected: dict[str, Any], verdict: dict[str, Any]) -> None:
    """Any member of a cycle may be the one that the verdict names."""
    members = expected.get("cycle") or [
        {"function": expected.get("python_function"), "line_text": expected.get("python_line_text")}
    ]
    if members[0]["function"] is None:  # none of them is the late one
        return
    frame = verdict["user_frame"] or {}
    named = [member for member in members if member["function"] == frame.get("function")]
    assert named, (members, verdict)
    if text := named[0]["line_text"]:
        assert frame["line"] == find_line(path, text), verdict
