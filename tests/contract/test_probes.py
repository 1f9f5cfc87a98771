"""Probes run inside a foreign interpreter: old syntax, standard library only, one JSON line, nothing changed."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.lanes import INTERPRETERS

PROBES = sorted((Path(__file__).parents[2] / "probes").glob("*.py"))
# Everything a probe could leave behind in the interpreter, compared before and after.
COMPARED = """
import json, os, signal, sys, threading, warnings
def state():
    return [dict(os.environ), os.getcwd(), threading.active_count(), repr(warnings.filters),
            [repr(signal.getsignal(n)) for n in range(1, 32) if n not in (9, 19)], sys.gettrace()]
before = state()
exec(compile(sys.stdin.read(), "probe", "exec"), {"__name__": "__main__"})
assert state() == before, "the probe changed its interpreter"
"""


def run_probe(python: str, probe: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-I", "-S", *words], input=probe.read_text(), capture_output=True, text=True, timeout=60, check=True
    )


@pytest.mark.parametrize("probe", PROBES, ids=lambda path: path.stem)
def test_probe_has_python_39_syntax_and_imports_the_standard_library_only(probe: Path) -> None:
    tree = ast.parse(probe.read_text(), feature_version=(3, 9))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= set(sys.stdlib_module_names) - {"multiprocessing"}


@pytest.mark.parametrize("version", INTERPRETERS)
@pytest.mark.parametrize("probe", PROBES, ids=lambda path: path.stem)
def test_probe_from_stdin_prints_one_json_line(probe: Path, version: str) -> None:
    answer = run_probe(INTERPRETERS[version], probe, "-")
    assert len(answer.stdout.splitlines()) == 1 and not answer.stderr
    assert json.loads(answer.stdout)


@pytest.mark.parametrize("version", INTERPRETERS)
def test_interpreter_probe_tells_the_version_the_interpreter_itself_tells(version: str) -> None:
    python = INTERPRETERS[version]
    told = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    probe = next(path for path in PROBES if path.stem == "interpreter")
    assert json.loads(run_probe(python, probe, "-").stdout)["python"].removesuffix(" (free-threaded)") == told


@pytest.mark.parametrize("version", INTERPRETERS)
@pytest.mark.parametrize("probe", PROBES, ids=lambda path: path.stem)
def test_probe_changes_nothing_in_its_interpreter(probe: Path, version: str) -> None:
    run_probe(INTERPRETERS[version], probe, "-c", COMPARED)
