"""The document of `harness doctor`. Types only."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from harness.errors import EXIT_FAULT, EXIT_INCONCLUSIVE
from harness.evidence.facility import Facility

DOCTOR_SCHEMA = "harness.doctor/1"
Health = Literal["works", "degraded", "cannot-capture"]


class Doctor(Struct, frozen=True):
    """The document of `harness doctor --json`."""

    harness: str
    python: str
    platform: str
    facilities: tuple[Facility, ...]
    status: Health
    summary: str = ""
    schema: str = DOCTOR_SCHEMA
    host: str | None = None

    @property
    def exit_code(self) -> int:
        """0 everything works; 11 something is missing or could not be checked; 10 nothing can be captured."""
        return {"works": 0, "degraded": EXIT_INCONCLUSIVE, "cannot-capture": EXIT_FAULT}[self.status]
