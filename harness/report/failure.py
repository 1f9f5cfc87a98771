"""The document that `--json` prints when a command could not do its work: one sentence and what to type next."""

from __future__ import annotations

from msgspec import Struct


class Failure(Struct, frozen=True):
    harness: str
    error: str
    next: str
    exit_code: int
    schema: str = "harness.failure/1"


def render_failure(failure: Failure, *, width: int, color: bool) -> str:
    return f"harness: {failure.error}\n  next: {failure.next}\n"
