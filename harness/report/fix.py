"""The answer of `harness openmp fix`: what would be, or was, changed, and what to type next."""

from __future__ import annotations

import shlex
from typing import Literal

from msgspec import Struct

from harness.remedy.links import Outcome
from harness.remedy.openmp import Plan
from harness.report.text import rows

FIX_SCHEMA = "harness.openmp-fix/1"


class FixDocument(Struct, frozen=True):
    """`plan` null: an undo. `outcome` null: nothing was changed, the plan was only shown."""

    harness: str
    python: str
    action: Literal["dry-run", "apply", "undo"]
    plan: Plan | None
    outcome: Outcome | None
    schema: str = FIX_SCHEMA


def render_fix(document: FixDocument, *, width: int, color: bool) -> str:
    lines = [f"harness: {_headline(document)}"]
    if document.plan is not None:
        plan = document.plan
        lines += rows("in", [plan.prefix], width, color)
        lines += rows("keep", plan.kept, width, color)
        lines += rows("link", [f"{link.path}  ->  {link.target}" for link in plan.links], width, color)
        lines += rows("broken", [f"{path}: the copy it is a link to is gone" for path in plan.broken], width, color)
        dealt_with = {f"{plan.prefix}/{path}" for path in (*plan.kept, *(link.path for link in plan.links))}
        left = [refusal for refusal in plan.refused if refusal.path not in dealt_with]
        lines += rows("leave", [f"{refusal.path}: {refusal.why}" for refusal in left], width, color)
    if document.outcome is not None:
        lines += rows("changed", document.outcome.changed, width, color)
        lines += rows("as it was", document.outcome.already, width, color)
    return "\n".join([*lines, *rows("next", _next(document), width, color)]) + "\n"


def _headline(document: FixDocument) -> str:
    outcome, plan = document.outcome, document.plan
    if outcome is not None:
        if not outcome.changed:
            return "Nothing had to be changed."
        done = "now linked to the copy that is kept" if document.action == "apply" else "restored as it was"
        return f"{_files(len(outcome.changed))} {done}."
    if plan is not None and plan.links:
        return f"{_files(len(plan.links))} would become a link to the copy that is kept; nothing was changed."
    return "There is nothing to fix: no two copies of one runtime are both used."


def _files(count: int) -> str:
    return f"{count} file{'s' * (count != 1)}"


def _next(document: FixDocument) -> list[str]:
    python = shlex.quote(document.python)
    command = f"harness openmp fix --python {python}"
    if document.plan is not None and document.plan.broken:
        return [f"{command} --undo"]
    if document.action == "apply" and document.plan is not None and document.plan.links:
        return [f"harness openmp --python {python}", f"to take it back: {command} --undo"]
    if document.action == "dry-run" and document.plan is not None and document.plan.links:
        return [f"{command} --apply"]
    return [f"harness openmp --python {python}"]
