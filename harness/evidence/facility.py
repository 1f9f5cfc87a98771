"""One way of observing a process, and whether this machine allows it.

A fact, not a judgement: what follows from a missing one is decided in `diagnose`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct

State = Literal["yes", "no", "unknown"]


class Facility(Struct, frozen=True):
    """`unknown` is "could not check", never the same as "no". `fix` is null where nothing is to be done or known."""

    name: str
    state: State
    detail: str
    why: str | None
    fix: str | None
    essential: bool


class Seen(NamedTuple):
    """The answer of one look."""

    state: State
    detail: str
    why: str | None = None
    fix: str | None = None
