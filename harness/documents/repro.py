"""The document of `harness repro`: its arms, and the decision. Types only."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from harness.documents.verdict import Component, Document, Status
from harness.evidence.experiment import Patient, Plan

State = Literal["clean", "fault", "hang", "slow", "ended", "not-run"]
FAULTS: tuple[State, ...] = ("fault", "hang")


class ReproDocument(Struct, frozen=True):
    """`complete`: every arm that was planned has its row. `case`: where it is kept, for --resume."""

    harness: str
    case: str | None
    plan: Plan
    patients: tuple[Patient, ...]
    runs: tuple[Run, ...]
    decision: Decision
    complete: bool
    saved: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    schema: str = "harness.repro/1"


class Advice(Struct, frozen=True):
    do: str
    because: str


class Decision(Struct, frozen=True):
    """`bounds`: of each suspect that did not fail, how often it may fail nevertheless."""

    headline: str
    component: Component | None
    status: Status
    because: tuple[str, ...]
    recommend: tuple[Advice, ...]
    avoid: tuple[Advice, ...]
    bounds: tuple[str, ...]
    next: str | None
    exit_code: int


class Run(Struct, frozen=True):
    """A row. `valid` null: it died before it could show that it differs, or was not run. `why`: of what is not clean.

    `step`, `at`: where it was when it ended, by its own marks. `ran`: what it really ran with, by its own report.
    """

    name: str
    arm: str
    changed: dict[str, str | int]
    options: dict[str, str | int]
    against: str | None
    device: str
    python: str
    repeat: int
    state: State
    valid: bool | None
    why: str | None
    steps_asked: int
    steps_done: int
    step: int | None
    at: str | None
    checksum: str | None
    seconds: float
    ran: dict[str, Any]
    verdict: Document | None

    @property
    def counts(self) -> bool:
        """As evidence, for or against."""
        return self.valid is True and self.state in ("clean", *FAULTS)

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        return self.name, self.arm, self.device, self.python, self.repeat

    @property
    def place(self) -> tuple[str, str, str]:
        """Arms are compared with each other only in the same one."""
        return self.name, self.device, self.python
