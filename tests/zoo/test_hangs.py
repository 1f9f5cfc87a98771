"""Every way of not getting on, and its control twin: `harness attach` must say what the program itself declares.

Both twins run, and are looked at, side by side. What the literals mean is written in hang_driver.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kept_cases import check_look, read_document
from tests.zoo.hang_driver import HANGS, Hang, NotHere, find_line, start
from tests.zoo.literals import read_literals
from tests.zoo.test_zoo import INTERPRETERS, TODAY, has_symbols

LOOK_S = "4"
DEADLINE_S = 60
EXIT = {"progressing": 0, "waiting": 11, "busy-python": 11, "busy-native": 11}
# What depends on how an interpreter is laid out in memory; the rest is judged once.
EVERYWHERE = {
    "lock_order_two",
    "lock_order_three",
    "lock_dead_holder",
    "busy_many_lines",
    "queue_put_full",
    "event_nobody_sets",
    "gil_against_mutex",
    "asyncio_beat_beside",
    "busy_iterator",
}
WITH_NEWER = {"lock_order_two", "lock_order_three", "busy_many_lines", "asyncio_never_done", "asyncio_beat_beside"}
# Up to 3.13 only py-spy tells what Python calls a thread, and it cannot read a free-threaded build.
UNNAMED = {("lock_order_two", "3.13t")}


def list_runs() -> Iterator[Any]:
    for path in sorted(HANGS.glob("*.py")):
        literals = read_literals(path)
        for version, python in INTERPRETERS.items():
            everywhere = WITH_NEWER if version in TODAY else EVERYWHERE
            asked = path.stem in everywhere and (path.stem, version) not in UNNAMED and not literals.get("NEEDS")
            if python == sys.executable or asked:
                yield pytest.param(path, python, id=f"{path.stem}-{version}")


@pytest.mark.parametrize(("path", "python"), list(list_runs()))
def test_verdict(path: Path, python: str, tmp_path: Path) -> None:
    literals = read_literals(path)
    if reason := literals.get("SKIP"):
        pytest.skip(reason)
    for module in literals.get("NEEDS", ()):
        pytest.importorskip(module)
    with ExitStack() as stack:
        try:
            fault, control = (stack.enter_context(begin(path, python, twin, tmp_path)) for twin in ("fault", "control"))
        except NotHere as error:
            pytest.skip(str(error))
        looks = [(hang, look_at(hang.pid, tmp_path / "cases")) for hang in (fault, control)]
        (_, wrong), (_, well) = [(hang, read(look)) for hang, look in looks]
        check_fault(path, expect(literals, python), fault, wrong)
        verdict = well["verdict"]
        assert verdict["kind"] == literals["CONTROL"]["kind"], (verdict, "control")
        assert fault.poll() is None and control.poll() is None, "the look ended it"


def expect(literals: dict[str, Any], python: str) -> dict[str, Any]:
    """STRIPPED says what differs for an interpreter without symbols."""
    return {**literals["EXPECT"], **({} if has_symbols(python) else literals.get("STRIPPED", {}))}


def begin(path: Path, python: str, twin: str, tmp_path: Path) -> Hang:
    (tmp_path / twin).mkdir()
    return start(path, python, twin == "control", tmp_path / twin)


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
