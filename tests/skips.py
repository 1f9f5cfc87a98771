"""`python -m tests.skips LIST …`: the lists of all lanes of CI joined; a test that was skipped in each of them fails.

A lane is one `make test`, which writes what ran and what was skipped, and why, to build/lane.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

LANE = Path("build/lane.json")
# What none of our lanes can have, as the skip says it, and why that is.
NOWHERE = {
    "the real text of a hung search is not beside the project": "it cannot be shipped",
    "needs root and a version 1 memory control group": "GitHub's machines have version 2",
}


def name_case(case: ElementTree.Element) -> str:
    """As pytest takes it; a module that skips itself as a whole is a case without a class."""
    module, name = case.get("classname"), case.get("name") or ""
    return f"{module.replace('.', '/')}.py::{name}" if module else f"{name.replace('.', '/')}.py"


def is_skipped(case: ElementTree.Element) -> bool:
    """One that is known to fail is written as skipped too, but it ran."""
    skipped = case.find("skipped")
    return skipped is not None and skipped.get("type") != "pytest.xfail"


def write_lane(reports: Iterable[Path], to: Path) -> None:
    cases = [case for report in reports for case in ElementTree.parse(report).getroot().iter("testcase")]
    skipped = {name_case(case): case.find("skipped").get("message") for case in filter(is_skipped, cases)}
    to.parent.mkdir(exist_ok=True)
    to.write_text(json.dumps({"ran": [name_case(case) for case in cases if not is_skipped(case)], "skipped": skipped}))


def has_run(name: str, ran: set[str]) -> bool:
    """A module, and a test whose list of parameters is empty, have other names where they run."""
    if "::" in name and not name.endswith("NOTSET]"):
        return name in ran
    begin = name.partition("[")[0] + ("[" if "::" in name else "::")
    return any(one.startswith(begin) for one in ran)


def find_never_run(lanes: Iterable[dict[str, list[str] | dict[str, str]]]) -> dict[str, str]:
    """With the reason that one of the lanes gave."""
    ran, skipped = set(), {}
    for lane in lanes:
        ran |= set(lane["ran"])
        skipped |= lane["skipped"]
    return {name: why for name, why in skipped.items() if why not in NOWHERE and not has_run(name, ran)}


if __name__ == "__main__":
    never = find_never_run(json.loads(Path(word).read_text()) for word in sys.argv[1:])
    print("".join(f"skipped in every lane: {name}: {why}\n" for name, why in never.items()), end="")
    raise SystemExit(bool(never) or not sys.argv[1:])
