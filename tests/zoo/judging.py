"""What a scenario declares, held against the verdict on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.builders.kept_cases import check_run, read_document
from tests.builders.lanes import has_symbols
from tests.builders.literals import read_literals
from tests.zoo.driver import name_interpreter, prepared, supervise


def check_stack(expected: dict[str, Any], verdict: dict[str, Any]) -> None:
    """(function, file, line) of the innermost calls; the function by a part of its name."""
    for (function, file, line), call in zip(expected.get("stack", ()), verdict["stack"]["calls"], strict=False):
        assert function in call["function"], verdict["stack"]
        assert (Path(call["file"] or "").name, call["line"]) == (file, line), verdict["stack"]


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
