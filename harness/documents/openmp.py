"""The document of `harness openmp`. Types only."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from harness.documents.verdict import Ground, Remedy, Status, Upstream
from harness.errors import EXIT_FAULT, EXIT_INCONCLUSIVE
from harness.evidence.openmp import Census

OPENMP_SCHEMA = "harness.openmp/1"
RulingKind = Literal["conflict", "risk", "no-conflict"]


class Ruling(Struct, frozen=True):
    """`explanation` is one paragraph for somebody who has never heard of OpenMP."""

    kind: RulingKind
    status: Status
    headline: str
    explanation: str
    grounds: tuple[Ground, ...]
    remedies: tuple[Remedy, ...]
    upstream: tuple[Upstream, ...] = ()
    next: str | None = None


class Look(Struct, frozen=True):
    """What was seen in one place, or after one order of imports, and what it means."""

    ruling: Ruling
    census: Census


class OpenmpDocument(Struct, frozen=True):
    """One look, or one for each import order; the ruling is that of the worst."""

    harness: str
    ruling: Ruling
    looks: tuple[Look, ...]
    schema: str = OPENMP_SCHEMA

    @property
    def exit_code(self) -> int:
        if self.ruling.kind == "conflict":
            return EXIT_FAULT
        return EXIT_INCONCLUSIVE if self.ruling.kind == "risk" or self.ruling.status == "unknown" else 0
