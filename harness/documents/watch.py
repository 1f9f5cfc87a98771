"""The documents of `harness watch`, one for each event. Types only."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from harness.documents.verdict import Document, MemoryUse


class WatchEvent(Struct, frozen=True):
    """`verdict`: of the look that a stall, or slow movement, was the reason for. `exit_code`, `signal`: once ended.

    watching: begun. moves: the first movement. stall: nothing moved for too long, told once. slow: nothing outside
    changed for as long, but the look saw movement. recovered: it moves again. ended. left: by the user, it runs on.
    """

    event: Literal["watching", "moves", "stall", "slow", "recovered", "ended", "left"]
    at: str
    pid: int
    text: str
    watched_s: float
    quiet_s: float
    rule: str
    moving: tuple[str, ...] = ()
    exit_code: int | None = None
    signal: str | None = None
    source: str | None = None
    verdict: Document | None = None
    memory: MemoryUse | None = None
    host: str | None = None
    schema: str = "harness.watch/1"
