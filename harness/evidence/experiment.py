"""What the arms of an experiment told about themselves, and the interpreters they ran in.

Facts only: whether an arm counts, and what the arms together say, is decided in `diagnose`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

Options = dict[str, str | int]


class Patient(Struct, frozen=True):
    """An interpreter and what is installed for it. `why`: it could not be asked, and then the rest is not known.

    `devices`: why each one cannot be used, null where it can; the whole null where there is no torch to ask.
    """

    python: str
    version: str | None = None
    packages: dict[str, str] = {}
    devices: dict[str, str | None] | None = None
    why: str | None = None


class Arm(Struct, frozen=True):
    """One program to run: a reproducer with its options, which differ in one thing from those of `against`."""

    name: str
    arm: str
    options: Options
    against: str | None
    changed: Options


class Told(Struct, frozen=True):
    """What the side channel says. `step` and `at`: the part of a step that it entered last, the place of a death."""

    steps_done: int = 0
    step: int | None = None
    at: str | None = None
    ran: dict[str, Any] = {}
    checksum: str | None = None
    finished: bool = False


class Plan(Struct, frozen=True):
    """What was asked for. Two equal ones are the same experiment, which can be continued."""

    names: tuple[str, ...]
    devices: tuple[str, ...]
    pythons: tuple[str, ...]
    arms: tuple[str, ...]
    repeat: int
    scale: str
    steps: int | None
    timeout_s: float
