"""Every way of dying, and its control twin: the verdict must be what the scenario itself declares.

The literals in a scenario are its ground truth; they are read without importing it. EXPECT holds for both injections;
what the shim cannot see is in SHIM (without root in SHIM_UNPRIVILEGED), what nobody sees without root in UNPRIVILEGED,
what cannot be told of an interpreter without symbols in STRIPPED, next to it, with the reason; `...` there means not
known beforehand.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.builders.lanes import INTERPRETERS, OLDEST_AND_NEWEST, TODAY, VERSIONS, is_further, is_ours, version_of
from tests.builders.literals import SCENARIOS, read_literals
from tests.zoo.driver import INJECTIONS
from tests.zoo.judging import run_and_check

LINK_SIGNALS = {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP", "SIGSYS"}


def list_runs() -> list[Any]:
    """What needs an installed package runs in our own environment only; controls there and on oldest and newest."""
    runs = []
    for path in sorted(SCENARIOS.glob("*.py")):
        literals = read_literals(path)
        versions = [lane for lane in INTERPRETERS if version_of(lane) in literals.get("VERSIONS", (*VERSIONS, *TODAY))]
        for version, twin, inject in itertools.product(versions, ("fault", "control"), INJECTIONS):
            if (literals.get("NEEDS") or literals.get("PROGRAM")) and not is_ours(version):
                continue
            if is_further(version) and not is_worth_another(literals, twin, inject):
                continue
            if twin == "control" and not (is_ours(version) or version in OLDEST_AND_NEWEST):
                continue
            if inject == "preload" or (not literals.get("PROGRAM") and is_worth_the_shim(literals, version, twin)):
                runs.append(pytest.param(path, version, twin, inject, id=f"{path.stem}-{version}-{twin}-{inject}"))
    return runs


def is_worth_the_shim(literals: dict[str, Any], version: str, twin: str) -> bool:
    """Everything everywhere would take ten minutes more; the preserving programs do run on every interpreter.

    On our own all faults, and the controls of what the link sees; on the oldest and the newest what the link sees.
    """
    seen_by_link = literals["EXPECT"]["signal"] in LINK_SIGNALS
    if twin == "control":
        return is_ours(version) and seen_by_link and not literals.get("NEEDS")
    return is_ours(version) or (seen_by_link and version in OLDEST_AND_NEWEST and not literals.get("SLOW"))


def is_worth_another(literals: dict[str, Any], twin: str, inject: str) -> bool:
    """What the link sees, once."""
    seen_by_link = literals["EXPECT"]["signal"] in LINK_SIGNALS
    return seen_by_link and (twin, inject) == ("fault", "preload") and not literals.get("SLOW")


def test_the_shim_may_see_less_but_changes_no_end() -> None:
    for path in sorted(SCENARIOS.glob("*.py")):
        literals = read_literals(path)
        if shim := literals.get("SHIM"):
            assert shim["because"], path
            assert shim.keys() - {"because"} <= literals["EXPECT"].keys() - {"exit", "signal", "role"}, path


@pytest.mark.parametrize(("path", "version", "twin", "inject"), list_runs())
def test_verdict(path: Path, version: str, twin: str, inject: str, tmp_path: Path, built: Path) -> None:
    run_and_check(path, INTERPRETERS[version], twin, inject, tmp_path, built)
