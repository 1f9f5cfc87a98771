"""One run of a scenario as cells: what is so, what was told, and whether that is true.

A cell exists only where the scenario declares a truth. Null is no truth to name: what must not be named is asserted by
the zoo, and that all of its assertions hold is a cell too.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Callable, NamedTuple

from tests.zoo.driver import Prepared, name_interpreter, supervise
from tests.zoo.judging import check_verdict
from tests.zoo.peers import Told

FIELDS = ("kind", "status", "component", "line", "rank", "all asserted")
DECISIVE = ("kind", "component", "rank")


class Cell(NamedTuple):
    truth: Any
    told: Any
    true: bool


class Run(NamedTuple):
    scenario: str
    twin: str
    group: str
    cells: dict[str, Cell]
    established: bool = False
    skipped: str | None = None
    duration_s: float = 0.0

    @property
    def false_established(self) -> bool:
        """A verdict that claims proof and has the kind, the component or the rank wrong."""
        return self.established and not all(self.cells[field].true for field in DECISIVE if field in self.cells)

    def describe(self, field: str) -> str:
        cell = self.cells[field]
        return f"{self.scenario} ({self.twin}): {field}: {cell.truth}, told as {str(cell.told)[:160]}"


Judge = Callable[[Prepared, dict[str, Any], Path], "tuple[dict[str, Cell], bool]"]


def read_truths(expected: dict[str, Any]) -> dict[str, Any]:
    image = expected.get("component")
    start = name_interpreter(sys.executable) if image == "interpreter" else image
    truths = {
        "kind": expected["kind"],
        "status": expected.get("status"),
        "component": (start, expected.get("component_function") or "") if start else None,
        "line": expected.get("user_function") or expected.get("context_function"),
        "rank": expected.get("rank"),
    }
    return {field: truth for field, truth in truths.items() if truth is not None}


def judge_harness(run: Prepared, expected: dict[str, Any], folder: Path) -> tuple[dict[str, Cell], bool]:
    """The cells, and whether it claims proof."""
    status, document = supervise(run, "preload", folder)
    verdict = document["verdict"]
    component = verdict["component"] or {}
    frame = verdict["user_frame" if expected.get("user_function") else "context_frame"] or {}
    told = {
        "kind": verdict["kind"],
        "status": verdict["status"],
        "component": (Path(component.get("image") or "").name, component.get("function") or ""),
        "line": frame.get("function"),
        "rank": verdict["process"]["rank"],
    }
    truths = read_truths(expected)
    cells = {field: Cell(truth, told[field], is_told(truth, told[field])) for field, truth in truths.items()}
    return {**cells, "all asserted": judge_all(expected, status, document)}, verdict["status"] == "established"


def is_told(truth: Any, told: Any) -> bool:
    """An image by the start of its name and a native function by a part of it, as everywhere in the zoo."""
    if isinstance(truth, tuple):
        return told[0].startswith(truth[0]) and truth[1] in told[1]
    return told == truth


def judge_all(expected: dict[str, Any], status: int, document: dict[str, Any]) -> Cell:
    try:
        check_verdict(expected, status, document, sys.executable)
    except AssertionError as error:
        return Cell("holds", f"{document['verdict']['headline']} {error}", False)
    return Cell("holds", "holds", True)


def judge_peer(ask: Callable[[Prepared, Path], Told]) -> Judge:
    """A peer has no degrees of certainty, and knows no ranks."""

    def judge(run: Prepared, expected: dict[str, Any], folder: Path) -> tuple[dict[str, Cell], bool]:
        told, truths = ask(run, folder / "bare"), read_truths(expected)
        cells = {"kind": Cell(truths["kind"], told.kind, told.kind == truths["kind"])}
        for field, is_named in (
            ("component", lambda truth: told.names_component(*truth)),
            ("line", told.names_function),
            ("rank", lambda truth: False),
        ):
            if truth := truths.get(field):
                cells[field] = Cell(truth, truth if is_named(truth) else None, is_named(truth))
        return cells, False

    return judge


def know_nothing(run: Run) -> Run:
    """Of whoever cannot look at the dead."""
    cells = {field: cell._replace(told=None, true=False) for field, cell in run.cells.items()}
    return run._replace(cells=cells)
