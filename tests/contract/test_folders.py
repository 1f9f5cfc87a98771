"""The folders of the tests: `unit` mirrors the rooms, and what several tests build with is in `builders`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.halves import BESIDE

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
FILES = sorted(TESTS.rglob("*.py"))
QUICK = {"unit", "contract", "builders"}  # these start no patient, so they need nothing of those that do
SLOW = {"live", "zoo", "bench", "native"}


def list_imports(path: Path) -> Iterator[tuple[str, ...]]:
    """What of the tests it imports, wherever in the file, as a path of names."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (tuple(name.split(".")[1:]) for name in names if name.startswith("tests."))


def find_wrong(path: Path, folder: str) -> list[tuple[str, ...]]:
    return [
        names
        for names in list_imports(path)
        if any(name.startswith("test_") for name in names) or (folder in QUICK and names[0] in SLOW)
    ]


def test_nothing_is_imported_from_a_test_nor_by_the_quick_from_the_slow() -> None:
    wrong = {str(path): find_wrong(path, path.relative_to(TESTS).parts[0]) for path in FILES}
    assert not {path: imports for path, imports in wrong.items() if imports}


def test_such_an_import_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    path.write_text("def f():\n    from tests.live.sshd import Host\nfrom tests.zoo import test_zoo\n")
    assert find_wrong(path, "unit") == [("zoo", "test_zoo"), ("live", "sshd", "Host")]
    assert find_wrong(path, "live") == [("zoo", "test_zoo")]


def test_every_folder_of_the_unit_tests_is_a_room() -> None:
    folders = {path.parent.relative_to(TESTS / "unit") for path in (TESTS / "unit").rglob("*.py")}
    assert folders and Path() not in folders
    assert not [folder for folder in folders if not (ROOT / "harness" / folder).is_dir()]


def test_the_live_tests_that_run_beside_others_are_there() -> None:
    assert not [name for name in BESIDE if not (TESTS / "live" / f"test_{name}.py").exists()]
