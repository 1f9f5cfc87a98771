"""Reproducers run alone, in anybody's Python, and say about themselves what harness and the tests rely on."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.capture.experiment.reproducers import BASE, CONTROL, list_reproducers
from tests.builders.lanes import INTERPRETERS
from tests.builders.literals import read_literals

FILES = sorted((Path(__file__).parents[2] / "reproducers").glob("*.py"))
EACH = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
SHARED = re.compile(r"^# shared: (\w+).*?^# end of shared$", re.MULTILINE | re.DOTALL)


@EACH
def test_python_39_syntax_and_nothing_imported_but_the_standard_library(path: Path) -> None:
    """The patients are imported by name, in the order that the arm asks for."""
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= set(sys.stdlib_module_names)
    assert "harness" not in imported


@EACH
def test_what_a_maintainer_upstream_asks_first(path: Path) -> None:
    words = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert re.findall(r"^(\w+):", words, re.MULTILINE) == ["Symptom", "Cause", "Upstream", "Needs"]
    assert re.search(r'\A# /// script\n# requires-python = ">=3.9"\n# dependencies = \[.*\]\n# ///\n', path.read_text())


@EACH
def test_no_file_shadows_a_package_that_the_others_import(path: Path) -> None:
    """A script's own directory comes first on its path."""
    assert path.stem not in {"torch", "faiss", "numpy", *sys.stdlib_module_names}


@EACH
def test_every_arm_changes_one_thing(path: Path) -> None:
    reproducer = next(one for one in list_reproducers().values() if one.path == path)
    assert not reproducer.arms[BASE].changed and reproducer.arms[CONTROL].against == BASE
    for name, arm in reproducer.arms.items():
        assert name == BASE or len(arm.changed) == 1, name
        assert arm.options.keys() == reproducer.options.keys()
    assert {arm for group in reproducer.agree for arm in group} <= reproducer.arms.keys()
    assert set(read_literals(path)["SHAPES"]) == {"tiny", "small", "seed"}
    assert read_literals(path)["EXPECT"] == {"kind": "clean", "exit": 0}


def test_the_seed_scale_has_the_shapes_of_the_incident() -> None:
    shapes = {read_literals(path)["NAME"]: read_literals(path)["SHAPES"]["seed"] for path in FILES}
    assert (shapes["twotower"]["rows"], shapes["twotower"]["time"], shapes["twotower"]["width"]) == (35901, 100, 768)
    assert (shapes["twotower"]["documents"], shapes["twotower"]["bank_rows"]) == (771115, 50000)
    assert (shapes["faiss"]["vectors"], shapes["faiss"]["width"]) == (771115, 768)
    assert (shapes["gru"]["width"], shapes["gru"]["hidden"], shapes["gru"]["bank_rows"]) == (768, 512, 50000)
    pairs = {(arm.options["batch"], arm.options["accumulation"]) for arm in list_reproducers()["accum"].arms.values()}
    assert {(16, 32), (32, 16), (16, 1), (24, 4), (16, 4), (8, 64)} <= pairs


def test_what_the_files_share_is_the_same_in_all_of_them() -> None:
    """Each must run alone; what cannot be imported from one place is compared instead."""
    found: dict[str, dict[str, str]] = {}
    for path in FILES:
        for match in SHARED.finditer(path.read_text()):
            found.setdefault(match[1], {})[path.stem] = match[0]
    assert {name: len(set(texts.values())) for name, texts in found.items()} == {"options": 1, "devices": 1, "the": 1}
    assert {name: len(texts) for name, texts in found.items()} == {"options": 5, "devices": 4, "the": 3}


@pytest.mark.parametrize("version", INTERPRETERS)
@EACH
def test_without_its_packages_it_says_so_with_status_77(path: Path, version: str) -> None:
    done = subprocess.run(
        [INTERPRETERS[version], "-I", "-S", path], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 77, done.stderr
    assert re.fullmatch(r"not run: .* has no (torch|faiss)\n", done.stderr)


def test_it_runs_alone() -> None:
    """The one without torch; the others do so in the live tests."""
    pytest.importorskip("faiss")
    path = next(path for path in FILES if path.stem == "faiss_flat")
    done = subprocess.run([sys.executable, path, "--steps", "3"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "finished 3 steps" in done.stdout and "'k': 1000" in done.stdout
