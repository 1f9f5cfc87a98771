"""The document that `--json` prints when a command could not do its work. Types only."""

from __future__ import annotations

from msgspec import Struct


class Failure(Struct, frozen=True):
    harness: str
    error: str
    next: str
    exit_code: int
    schema: str = "harness.failure/1"
