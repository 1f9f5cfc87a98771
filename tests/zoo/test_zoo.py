"""Every way of dying, and its control twin: the verdict must be what the scenario itself declares.

The literals in a scenario are its ground truth; they are read without importing it. EXPECT holds for both injections;
what the shim cannot see is in SHIM (without root in SHIM_UNPRIVILEGED), what nobody sees without root in UNPRIVILEGED,
what cannot be told of an interpreter without symbols in STRIPPED, next to it, with the reason; `...` there means not
known beforehand.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.capture.files.formats.elf import Elf
from harness.diagnose.plumbing import is_interpreter
from tests import interpreters
from tests.kept_cases import check_run, read_document
from tests.zoo.driver import name_interpreter, prepared, supervise
from tests.zoo.literals import SCENARIOS, read_literals

VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13")
DISTRIBUTION = "-distribution"  # how the lane of its own interpreter is marked
TODAY = [version for version in interpreters.USUAL if interpreters.locate(version).exists()]  # by `make interpreters`
INJECTIONS = ("preload", "shim")
LINK_SIGNALS = {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP", "SIGSYS"}


def find_interpreters() -> dict[str, str]:
    """Every version that is present: on PATH, under a version manager, the distribution's own, and always ours."""
    found = {}
    roots = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"]
    for version in VERSIONS:
        managed = [path for root in roots for path in sorted(root.glob(f"{version}.*/bin/python{version}"))]
        if path := next(map(str, managed), None) or shutil.which(f"python{version}"):
            found[version] = path
    found |= {version: str(interpreters.locate(version)) for version in TODAY}
    found[f"{sys.version_info[0]}.{sys.version_info[1]}"] = sys.executable
    return found | find_distributions(found)


def find_distributions(others: dict[str, str]) -> dict[str, str]:
    """The distribution's own interpreter, static and stripped on Debian, where none of the others is that one."""
    python = Path("/usr/bin/python3").resolve()
    version = python.name.removeprefix("python")
    if version not in VERSIONS or python in {Path(other).resolve() for other in others.values()}:
        return {}
    return {f"{version}{DISTRIBUTION}": str(python)}


def version_of(lane: str) -> str:
    return lane.removesuffix(DISTRIBUTION)


def is_further(lane: str) -> bool:
    """One more interpreter of many: it runs what depends on how it is laid out in memory."""
    return not is_ours(lane) and (lane in TODAY or lane.endswith(DISTRIBUTION))


INTERPRETERS = find_interpreters()
_PRESENT = [version for version in VERSIONS if version in INTERPRETERS]
OLDEST_AND_NEWEST = {*_PRESENT[:1], *_PRESENT[-1:]}


def is_ours(version: str) -> bool:
    return INTERPRETERS[version] == sys.executable


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


def check_stack(expected: dict[str, Any], verdict: dict[str, Any]) -> None:
    """(function, file, line) of the innermost calls; the function by a part of its name."""
    for (function, file, line), call in zip(expected.get("stack", ()), verdict["stack"]["calls"], strict=False):
        assert function in call["function"], verdict["stack"]
        assert (Path(call["file"] or "").name, call["line"]) == (file, line), verdict["stack"]


@functools.cache
def has_symbols(python: str) -> bool:
    """Whether the interpreter's own functions have names; a distribution takes those out that it does not export."""
    source = (
        "import sys; print(*{line.split(maxsplit=5)[-1].strip() for line in open('/proc/self/maps') if '/' in line})"
    )
    paths = subprocess.check_output([python, "-I", "-c", source], text=True).split()
    images = sorted(filter(is_interpreter, paths), key=lambda path: "libpython" not in path)
    with Elf(Path(images[0])) as elf:
        return bool(elf.section(".symtab"))


def check_blame(expected: dict[str, Any], verdict: dict[str, Any], python: str) -> None:
    """Images by the start of their name, `interpreter` is the one that has it inside.

    A null component is not known beforehand; a null faulting image is none.
    """
    for name in ("component", "faulting_image"):
        if expected.get(name):
            image = (verdict[name] or {}).get("image") or ""
            start = name_interpreter(python) if expected[name] == "interpreter" else expected[name]
            assert Path(image).name.startswith(start), (name, verdict)
    if expected.get("blames_nobody"):
        assert verdict["component"] is None, verdict
    if "faulting_image" in expected and expected["faulting_image"] is None:
        assert verdict["faulting_image"] is None, verdict
    if expected.get("component_function"):
        assert expected["component_function"] in (verdict["component"]["function"] or ""), verdict
    for word in expected.get("fault", ()):
        assert word in (verdict["fault"] or ""), verdict


def test_the_shim_may_see_less_but_changes_no_end() -> None:
    for path in sorted(SCENARIOS.glob("*.py")):
        literals = read_literals(path)
        if shim := literals.get("SHIM"):
            assert shim["because"], path
            assert shim.keys() - {"because"} <= literals["EXPECT"].keys() - {"exit", "signal", "role"}, path


@pytest.mark.parametrize(("path", "version", "twin", "inject"), list_runs())
def test_verdict(path: Path, version: str, twin: str, inject: str, tmp_path: Path, built: Path) -> None:
    run_and_check(path, INTERPRETERS[version], twin, inject, tmp_path, built)


def run_and_check(path: Path, python: str, twin: str, inject: str, tmp_path: Path, built: Path) -> None:
    literals, control = read_literals(path), twin == "control"
    with prepared(path, python, control, tmp_path, built) as run:
        status, document = supervise(run, inject, tmp_path)
    check_run(Path(document["case"]))
    assert read_document(Path(document["case"], "verdict.json")) == document
    expected = literals["CONTROL"] if control else literals["EXPECT"]
    if inject == "shim" and not control:
        expected = {**expected, **literals.get("SHIM", {})}
        if os.getuid() != 0:
            expected = {**expected, **literals.get("SHIM_UNPRIVILEGED", {})}
    if os.getuid() != 0 and not control:
        expected = {**expected, **literals.get("UNPRIVILEGED", {})}
    if "STRIPPED" in literals and not control and not has_symbols(python):
        expected = {**expected, **literals["STRIPPED"]}
    check_verdict({name: value for name, value in expected.items() if value is not ...}, status, document, python)
    if control:
        assert document["verdict"]["against"] == []
        assert (tmp_path / "stderr").read_text().count("harness:") == 0


def check_verdict(expected: dict[str, Any], status: int, document: dict[str, Any], python: str) -> None:
    verdict = document["verdict"]
    assert verdict["kind"] == expected["kind"], verdict
    assert status == expected["exit"], verdict
    for name, actual in (
        ("status", verdict["status"]),
        ("signal", document["outcome"]["signal"]),
        ("role", verdict["process"]["role"]),
        ("rank", verdict["process"]["rank"]),
        ("user_function", (verdict["user_frame"] or {}).get("function")),
        ("context_function", (verdict["context_frame"] or {}).get("function")),
    ):
        if name in expected:
            assert actual == expected[name], (name, verdict)
    check_blame(expected, verdict, python)
    if "stack" in expected:
        check_stack(expected, verdict)
    check_words(expected, verdict)


def check_words(expected: dict[str, Any], verdict: dict[str, Any]) -> None:
    for word in expected.get("headline", ()):
        assert word in verdict["headline"]
    for word in expected.get("against", ()):
        assert any(word in sentence for sentence in verdict["against"]), verdict["against"]
    for word in expected.get("grounds", ()):
        assert any(word in ground["fact"] for ground in verdict["grounds"]), verdict["grounds"]
    for word in expected.get("not_in_headline", ()):
        assert word not in verdict["headline"]
    for word in expected.get("remedy", ()):
        assert word in verdict["remedies"][0]["do"], verdict
