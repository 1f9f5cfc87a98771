"""The document that `--json` prints when a command could not do its work: one sentence and what to type next."""

from __future__ import annotations

from harness.documents.failure import Failure


def render_failure(failure: Failure, *, width: int, color: bool) -> str:
    return f"harness: {failure.error}\n  next: {failure.next}\n"
