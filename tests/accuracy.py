"""`make accuracy`: how often the zoo's verdicts are true, on an idle and on a loaded machine, beside what others tell.

Of the dead (`harness run`) and of the living (`harness attach`).

`python -m tests.accuracy [--only LANE …] [-k TEXT …] [--jobs N] [--json FILE]`. Exit status 1 if a verdict of harness
was wrong; what the peers do not tell is only counted. Not a test.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.builders.hang_driver import HANGS, NotHere
from tests.builders.literals import SCENARIOS, read_literals
from tests.conftest import remove_stale_records
from tests.zoo.cells import FIELDS, Cell, Judge, Run, judge_harness, judge_peer, know_nothing, read_truths
from tests.zoo.driver import prepared
from tests.zoo.hang_cells import ask_peer, is_false_alarm, is_false_progress, judge_look
from tests.zoo.load import PER_CORE, busy_machine
from tests.zoo.peers import ask_faulthandler, ask_py_spy_of_the_dead, ask_pystack

OURS = ("idle", "loaded")
LIVING = ("pystack", "py-spy")  # those that can look at the living
PEERS = {"faulthandler": judge_peer(ask_faulthandler), "pystack": judge_peer(ask_pystack)}
GROUPS = {
    "a fault's signal": "segfault bus-error illegal-instruction arithmetic bad-syscall trap stack-overflow",
    "aborts": "abort cpp-exception memory-corruption python-fatal device-assert duplicate-openmp",
    "memory and limits": "oom-kill allocation-failure resource-limit shared-memory-full",
    "ended from outside": "killed terminated interrupted",
    "exceptions, exits": "python-exception exit-nonzero abi-mismatch collective-failure clean",
}
OTHERS, CONTROLS, ALL = "others", "controls", "all"
STUCK, WELL = "living, stuck", "living, controls"
WHERE = Path("build/accuracy.json")
WRONG = Path("build/accuracy-wrong")  # case, verdict and output of each run that was told wrong, of the last time
_BUILDING = threading.Lock()


def parse_words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=(*OURS, "peers"), default=[*OURS, "peers"], help="default: all")
    parser.add_argument("-k", nargs="+", default=[""], metavar="TEXT", help="scenarios with one of these in their name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="at a time (%(default)s)")
    parser.add_argument("--json", type=Path, default=WHERE, metavar="FILE", help="where it is kept (%(default)s)")
    return parser.parse_args()


def find_group(literals: dict[str, Any]) -> str:
    kind = literals["EXPECT"]["kind"]
    return next((group for group, kinds in GROUPS.items() if kind in kinds.split()), OTHERS)


def run_one(path: Path, twin: str, judge: Judge, built: Path) -> Run:
    literals, control, began = read_literals(path), twin == "control", time.monotonic()
    run = Run(path.stem, twin, CONTROLS if control else find_group(literals), {})
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"accuracy-{path.stem}-")))
        try:
            with _BUILDING:
                ready = stack.enter_context(prepared(path, sys.executable, control, folder, built))
        except pytest.skip.Exception as reason:
            return run._replace(skipped=str(reason))
        cells, established = judge_or_say_why(judge, ready, literals["CONTROL" if control else "EXPECT"], folder)
        run = run._replace(cells=cells, established=established, duration_s=round(time.monotonic() - began, 1))
        if list_wrong(run) and judge is judge_harness:
            shutil.copytree(folder, WRONG / folder.name, ignore=lambda where, names: {"ready"} & {*names})
    return run


def run_living(path: Path, twin: str, lane: str) -> Run:
    """`lane`: ours, or the peer that is asked."""
    literals, began = read_literals(path), time.monotonic()
    run = Run(path.stem, twin, WELL if twin == "control" else STUCK, {})
    if reason := literals.get("SKIP"):
        return run._replace(skipped=reason)
    if missing := [name for name in literals.get("NEEDS", ()) if importlib.util.find_spec(name) is None]:
        return run._replace(skipped=f"needs {missing[0]}")
    with tempfile.TemporaryDirectory(prefix=f"accuracy-{path.stem}-") as folder:
        try:
            judge = functools.partial(ask_peer, lane) if lane in LIVING else judge_look
            cells, established = judge(path, twin, literals, Path(folder))
        except NotHere as reason:
            return run._replace(skipped=str(reason))
        except Exception as error:  # noqa: BLE001 (as below)
            truth = literals["CONTROL" if twin == "control" else "EXPECT"]["kind"]
            cells, established = {"kind": Cell(truth, repr(error), False)} if lane in OURS else {}, False
    return run._replace(cells=cells, established=established, duration_s=round(time.monotonic() - began, 1))


def judge_or_say_why(judge: Judge, ready: Any, expected: dict[str, Any], folder: Path) -> tuple[dict[str, Cell], bool]:
    """A run that gave no verdict has told nothing true; the others are judged all the same."""
    try:
        return judge(ready, expected, folder)
    except Exception as error:  # noqa: BLE001
        return {field: Cell(truth, repr(error), False) for field, truth in read_truths(expected).items()}, False


def run_lane(lane: str, words: list[str], jobs: int, built: Path) -> list[Run]:
    paths, living = (
        [path for path in sorted(where.glob("*.py")) if any(word in path.stem for word in words)]
        for where in (SCENARIOS, HANGS)
    )
    paths = paths if lane in (*OURS, *PEERS) else []  # of the dead py-spy tells nothing
    judge, twins = PEERS.get(lane, judge_harness), ("fault", "control") if lane in OURS else ("fault",)
    remove_stale_records()
    with busy_machine() if lane == "loaded" else contextlib.nullcontext(), ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(run_one, path, twin, judge, built) for path in paths for twin in twins]
        if lane in (*OURS, *LIVING):
            waiting += [pool.submit(run_living, path, twin, lane) for path in living for twin in twins]
        return list(follow(lane, (future.result() for future in waiting), len(waiting)))


def follow(lane: str, runs: Iterable[Run], count: int) -> Iterator[Run]:
    """What harness tells wrong is said at once, on the log: the table comes at the very end."""
    for number, run in enumerate(runs, 1):
        for field in list_wrong(run) if lane in OURS else ():
            print(f"[{number}/{count}] {lane}: {run.describe(field)}", file=sys.stderr, flush=True)
        yield run


def list_wrong(run: Run) -> list[str]:
    return [field for field, cell in run.cells.items() if not cell.true]


def count(runs: Iterable[Run], field: str) -> str:
    cells = [run.cells[field] for run in runs if field in run.cells]
    return f"{sum(cell.true for cell in cells)}/{len(cells)}" if cells else "–"


def print_row(group: str, field: str, cells: Iterable[str]) -> None:
    print(f"{group:<20}{field:<16}" + "".join(f"{cell:>14}" for cell in cells))


def print_table(lanes: dict[str, list[Run]]) -> None:
    print_row("", "", lanes)
    for group in (*GROUPS, OTHERS, CONTROLS, STUCK, WELL, ALL):
        for field in FIELDS:
            cells = [count((run for run in runs if group in (ALL, run.group)), field) for runs in lanes.values()]
            if set(cells) != {"–"}:
                print_row(group, field, cells)
    ours = [runs for lane, runs in lanes.items() if lane in OURS]
    print_row(ALL, "established", (str(sum(run.established for run in runs)) for runs in ours))
    print_row(ALL, "of these false", (str(sum(run.false_established for run in runs)) for runs in ours))
    for group, name, is_so in ((STUCK, "told to move", is_false_progress), (WELL, "false alarms", is_false_alarm)):
        told = [[run for run in runs if run.group == group and run.cells] for runs in ours]
        print_row(group, name, (str(sum(is_so(run.twin, run.cells) for run in runs)) for runs in told))


def print_findings(lanes: dict[str, list[Run]]) -> int:
    """What harness told wrong, and what it told otherwise under load. How many were wrong."""
    wrong = [
        f"{lane}: {run.describe(field)}" for lane in OURS for run in lanes.get(lane, ()) for field in list_wrong(run)
    ]
    print_list("told wrong", wrong)
    pairs = zip(lanes.get("idle", ()), lanes.get("loaded", ()), strict=False)
    print_list("told otherwise when loaded", [line for one, other in pairs for line in list_differences(one, other)])
    skipped = {f"{run.scenario}: {run.skipped}" for runs in lanes.values() for run in runs if run.skipped}
    print_list("skipped", sorted(skipped))
    return len(wrong)


def print_list(title: str, lines: list[str]) -> None:
    print(f"\n{title}: {len(lines)}")
    for line in lines:
        print(f"  {line}")


def list_differences(idle: Run, loaded: Run) -> Iterator[str]:
    for field in idle.cells.keys() & loaded.cells.keys():
        if idle.cells[field].told != loaded.cells[field].told:
            yield f"{loaded.describe(field)}; idle: {str(idle.cells[field].told)[:160]}"


def keep(path: Path, lanes: dict[str, list[Run]], words: argparse.Namespace, dead: str | None) -> None:
    machine = {"python": platform.python_version(), "kernel": platform.release(), "cpus": os.cpu_count()}
    load = {"busy_processes": PER_CORE * (os.cpu_count() or 1), "jobs": words.jobs}
    runs = {lane: [to_json(run) for run in runs] for lane, runs in lanes.items()}
    totals = {lane: {field: count(lanes[lane], field) for field in FIELDS} for lane in lanes}
    for lane in set(OURS) & set(lanes):
        totals[lane]["established"] = sum(run.established for run in lanes[lane])
        totals[lane]["false_established"] = sum(run.false_established for run in lanes[lane])
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine, "load": load, "py_spy_of_the_dead": dead, "totals": totals, "runs": runs}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def to_json(run: Run) -> dict[str, Any]:
    cells = {field: cell._asdict() for field, cell in run.cells.items()}
    return {**run._asdict(), "cells": cells, "false_established": run.false_established}


def main() -> int:
    words, dead = parse_words(), None
    lanes: dict[str, list[Run]] = {}
    shutil.rmtree(WRONG, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="accuracy-built-") as built:
        for lane in [lane for lane in (*OURS, *PEERS) if (lane if lane in OURS else "peers") in words.only]:
            began = time.monotonic()
            lanes[lane] = run_lane(lane, words.k, words.jobs, Path(built))
            print(f"{lane}: {len(lanes[lane])} runs in {(time.monotonic() - began) / 60:.1f} min", flush=True)
    if "peers" in words.only:
        asked = [know_nothing(run) for run in lanes["pystack"] if run.group not in (STUCK, WELL)]
        lanes["py-spy"], dead = (
            [*asked, *run_lane("py-spy", words.k, words.jobs, Path(built))],
            ask_py_spy_of_the_dead(),
        )
        print(f"py-spy, asked about a process that died: {dead}")
    print_table(lanes)
    wrong = print_findings(lanes)
    keep(words.json, lanes, words, dead)
    print(f"\nkept in {words.json}")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
