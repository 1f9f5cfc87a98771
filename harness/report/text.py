"""The report of a verdict as a terminal shows it: its sections, painted."""

from __future__ import annotations

from harness.documents.verdict import Document
from harness.report.terminal import look_of, paint, tell_headline
from harness.report.verdict import head_verdict, list_sections

__all__ = ["look_of", "render", "render_line", "verdict_line"]


def render(document: Document, *, width: int, color: bool, terminal: bool = False) -> str:
    return paint(list_sections(document), width=width, color=color, terminal=terminal)


def render_line(document: Document, *, width: int, color: bool) -> str:
    """For -q."""
    return paint([head_verdict(document)], width=width, color=color)


def verdict_line(document: Document) -> str:
    """For those who do not wrap."""
    return tell_headline(head_verdict(document))
