"""A failing arm as one script that runs alone: its options are the defaults, its requirements pinned, its verdict told.

Text in, text out. Nothing of ours is needed to run it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Any

from harness.documents.repro import Run
from harness.evidence.experiment import Patient
from harness.report.verdict import name_component

_BLOCK = re.compile(r"^# /// script\n.*?^# ///\n", re.MULTILINE | re.DOTALL)
_DISTRIBUTIONS = {"faiss": "faiss-cpu"}
_WIDTH = 110


def pin_requirements(needs: Iterable[str], patient: Patient) -> list[str]:
    """Without the local part of a version (+cpu): which build it is belongs to the index."""
    names = [_DISTRIBUTIONS.get(name, name) for name in needs]
    pinned = {name: patient.packages[name].partition("+")[0] for name in names if name in patient.packages}
    return [f"{name}=={version}" for name, version in pinned.items()]


def write_standalone(
    source: str, run: Run, scale: str, patient: Patient, pins: list[str], surroundings: dict[str, str]
) -> str:
    minor = ".".join((patient.version or "3.9").split(".")[:2])
    quoted = ", ".join(f'"{pin}"' for pin in pins)
    block = f'# /// script\n# requires-python = ">={minor}"\n# dependencies = [{quoted}]\n# ///\n'
    source = _BLOCK.sub(lambda _: block + _tell(run, patient, surroundings), source, count=1)
    source = _replace_literal(source, "OPTIONS", run.options)
    defaults = {"device": run.device, "scale": scale, "steps": run.steps_asked}
    return _replace_literal(source, "DEFAULTS", defaults)


def _tell(run: Run, patient: Patient, surroundings: dict[str, str]) -> str:
    document = run.verdict
    lines = [f"Arm {run.arm} of the reproducer {run.name}, as it failed."]
    if document is not None:
        verdict = document.verdict
        lines += [f"Verdict: {verdict.headline} [{verdict.kind}, {verdict.status}]"]
        lines += [f"Component: {name_component(verdict.component)}"] if verdict.component else []
        lines += [f"Ended by: {document.outcome.signal or f'status {document.outcome.exit_code}'}"]
        lines += [f"Ground: {ground.fact} [{ground.source}]" for ground in verdict.grounds]
    if run.step is not None:
        lines.append(f"Where: step {run.step} of {run.steps_asked}, in {run.at}")
    versions = [
        f"{name} {patient.packages[name]}" for name in ("torch", "faiss-cpu", "numpy") if name in patient.packages
    ]
    lines.append(f"Ran with: Python {patient.version}, {', '.join(versions)}, {run.ran}")
    lines += [f"Environment: {name}={value}" for name, value in surroundings.items()]
    lines += [
        "To run: pip install -r requirements.txt, then this file; with --control it is the same without the suspect."
    ]
    return "#\n" + "".join(f"# {line}\n" for line in lines)


def _replace_literal(source: str, name: str, value: dict[str, Any]) -> str:
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            lines = source.splitlines(keepends=True)
            lines[node.lineno - 1 : node.end_lineno] = [f"{name} = {value!r}\n"]
            return "".join(lines)
    raise ValueError(f"the reproducer has no {name}")
