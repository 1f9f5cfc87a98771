"""Rows of an experiment, made by hand: what the rules of the decision are tried on."""

from __future__ import annotations

from typing import Any

from harness.documents.repro import Run
from harness.documents.verdict import Component, Document, Outcome, ProcessRef, Target, Verdict
from harness.evidence.experiment import Plan

PYTHON = "/venv/bin/python"
OPTIONS: dict[str, str | int] = {"accumulation": 32, "cell": "gru", "threads": 0}
RAN: dict[str, Any] = {"accumulation": 32, "cell": "gru", "threads": {"torch": 4}, "device": ["cpu"]}


def make_document(
    kind: str = "segfault",
    status: Any = "established",
    *,
    state: Any = "died",
    exit_code: int | None = None,
    named: bool = True,
) -> Document:
    component = Component("torch", "2.7.1", "/site/torch/lib/libtorch_cpu.so", "gru_backward") if named else None
    verdict = Verdict(
        kind=kind, status=status, headline=f"it ended: {kind}", component=component, faulting_image=None,
        process=ProcessRef(7, "main"), python_frame=None, user_frame=None, context_frame=None, signature=None,
        grounds=(), against=(), upstream=(), remedies=(), next="harness openmp",
    )  # fmt: skip
    target = Target(None, 7, ("python",), "3.11.2", "linux-x86_64")
    signal = None if exit_code is not None or state == "alive" else "SIGSEGV"
    return Document("0", None, target, Outcome(state, exit_code, signal), verdict, (), None, ())


def make_plan(**changes: Any) -> Plan:
    """As it is where nothing but a name is given."""
    facts: dict[str, Any] = {
        "names": ("gru",), "devices": ("cpu",), "pythons": (PYTHON,), "arms": (), "repeat": 1, "scale": "tiny",
        "steps": None, "timeout_s": 120.0,
    }  # fmt: skip
    return Plan(**{**facts, **changes})


def make_run(arm: str = "base", state: Any = "clean", **changes: Any) -> Run:
    """`changed` is what the arm changes; it ran as it was asked to, unless `ran` says otherwise."""
    changed = changes.pop("changed", {})
    seen = {name: {"torch": value} if name == "threads" else value for name, value in changed.items()}
    facts: dict[str, Any] = {
        "name": "gru", "arm": arm, "changed": changed, "options": {**OPTIONS, **changed},
        "against": None if arm == "base" else "base", "device": "cpu", "python": PYTHON, "repeat": 1,
        "state": state, "valid": None, "why": None, "steps_asked": 100, "steps_done": 100 if state == "clean" else 41,
        "step": 100 if state == "clean" else 42, "at": "backward", "checksum": "c0ffee" if state == "clean" else None,
        "seconds": 1.0, "ran": {**RAN, **seen}, "verdict": make_document() if state in ("fault", "hang") else None,
    }  # fmt: skip
    return Run(**{**facts, **changes})
