"""Whether this machine lets harness do its work: everything, some of it, or nothing.

Looks at nothing itself; every row comes from `capture.facilities`.
"""

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
    schema: str = DOCTOR_SCHEMA

    @property
    def exit_code(self) -> int:
        """0 everything works; 11 something is missing or could not be checked; 10 nothing can be captured."""
        return {"works": 0, "degraded": EXIT_INCONCLUSIVE, "cannot-capture": EXIT_FAULT}[self.status]


def judge_health(facilities: tuple[Facility, ...]) -> Health:
    """One essential "no" stops every capture; "could not check" is neither a "no" nor a clean bill of health."""
    essential = [facility.state for facility in facilities if facility.essential]
    if "no" in essential or not essential:
        return "cannot-capture"
    return "works" if all(facility.state == "yes" for facility in facilities) else "degraded"
