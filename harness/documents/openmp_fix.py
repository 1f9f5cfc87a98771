"""The document of `harness openmp fix`: the plan, the links it makes, and their outcome. Types only."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

FIX_SCHEMA = "harness.openmp-fix/1"


class FixDocument(Struct, frozen=True):
    """`plan` null: an undo. `outcome` null: nothing was changed, the plan was only shown."""

    harness: str
    python: str
    action: Literal["dry-run", "apply", "undo"]
    plan: Plan | None
    outcome: Outcome | None
    schema: str = FIX_SCHEMA


class Refusal(Struct, frozen=True):
    """A copy that stays as it is, and why, in one sentence."""

    path: str
    why: str


class Plan(Struct, frozen=True):
    """`kept`: the copies that serve all. Paths are relative to the prefix, in `refused` absolute.

    `made`: links of an earlier fix that are in place or were begun; `broken`: those that lead nowhere since.
    """

    prefix: str
    kept: tuple[str, ...]
    links: tuple[Link, ...]
    refused: tuple[Refusal, ...] = ()
    made: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


class Link(Struct, frozen=True):
    """`path` and `target` are relative to the prefix; the rest is what the file at `path` was before."""

    path: str
    target: str
    target_sha256: str
    sha256: str
    mode: int
    mtime_ns: int


class Outcome(Struct, frozen=True):
    """Paths relative to the prefix. `already`: nothing had to be done for these."""

    changed: tuple[str, ...]
    already: tuple[str, ...]
