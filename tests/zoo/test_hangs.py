"""Every way of not getting on, and its control twin: `harness attach` must say what the program itself declares.

Both twins run, and are looked at, side by side. What the literals mean is written in hang_driver.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.builders.hang_driver import HANGS, Hang, NotHere, start
from tests.builders.lanes import INTERPRETERS, TODAY
from tests.builders.literals import read_literals
from tests.zoo.hang_judging import check_fault, expect, look_at, read

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
        expected = literals["CONTROL"]  # `weaker`: where the time did not suffice to show that it moves
        assert verdict["kind"] in (expected["kind"], *expected.get("weaker", ())), (verdict, "control")
        assert fault.poll() is None and control.poll() is None, "the look ended it"


def begin(path: Path, python: str, twin: str, tmp_path: Path) -> Hang:
    (tmp_path / twin).mkdir()
    return start(path, python, twin == "control", tmp_path / twin)
