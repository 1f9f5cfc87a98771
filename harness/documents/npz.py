"""The document of `harness npz`. Types only."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from harness.documents.verdict import Ground, Remedy, Status
from harness.errors import EXIT_FAULT, EXIT_INCONCLUSIVE
from harness.evidence.arrays import ArrayFile, Measured, Room

NPZ_SCHEMA = "harness.npz/1"


class NpzRuling(Struct, frozen=True):
    kind: Literal["conflict", "risk", "no-conflict"]
    status: Status
    headline: str
    explanation: str
    grounds: tuple[Ground, ...]
    remedies: tuple[Remedy, ...]
    next: str | None = None


class NpzDocument(Struct, frozen=True):
    """`total_bytes`: in memory when every array is touched once and kept. `largest_bytes`: that of one alone."""

    harness: str
    ruling: NpzRuling
    files: tuple[ArrayFile, ...]
    total_bytes: int
    largest_bytes: int
    room: Room
    measured: tuple[Measured, ...] = ()
    python: str | None = None
    unread: tuple[str, ...] = ()
    schema: str = NPZ_SCHEMA

    @property
    def exit_code(self) -> int:
        return {"conflict": EXIT_FAULT, "risk": EXIT_INCONCLUSIVE, "no-conflict": 0}[self.ruling.kind]
