"""The answer of `harness openmp fix`: what would be, or was, changed, and what to type next."""

from __future__ import annotations

import shlex

from harness.documents.openmp_fix import FixDocument, Plan
from harness.report.sections import Section, keep_told, make_section
from harness.report.terminal import paint


def render_fix(document: FixDocument, *, width: int, color: bool) -> str:
    return paint(list_fix_sections(document), width=width, color=color)


def list_fix_sections(document: FixDocument) -> list[Section]:
    return keep_told(
        [
            make_section("harness", _headline(document), "notice", wrap=False),
            *(_list_plan(document.plan) if document.plan else []),
            make_section("changed", document.outcome.changed if document.outcome else None),
            make_section("as it was", document.outcome.already if document.outcome else None),
            make_section("next", _next(document), "next"),
        ]
    )


def _list_plan(plan: Plan) -> list[Section]:
    dealt_with = {f"{plan.prefix}/{path}" for path in (*plan.kept, *(link.path for link in plan.links))}
    left = [refusal for refusal in plan.refused if refusal.path not in dealt_with]
    return [
        make_section("in", plan.prefix),
        make_section("keep", plan.kept),
        make_section("link", [f"{link.path}  ->  {link.target}" for link in plan.links]),
        make_section("broken", [f"{path}: the copy it is a link to is gone" for path in plan.broken]),
        make_section("leave", [f"{refusal.path}: {refusal.why}" for refusal in left]),
    ]


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
