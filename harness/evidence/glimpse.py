"""Where Python was at one moment of a run, read without stopping it. Facts only.

It is what was seen at that time, and not at the end; a stack that moved while it was read may be mixed.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from harness.evidence.crash import CrashFrame


class GlimpseThread(Struct, frozen=True, omit_defaults=True):
    """Innermost frame first. `tid` as the process itself knows it."""

    frames: tuple[CrashFrame, ...]
    name: str | None = None
    tid: int | None = None
    owns_gil: bool = False
    active: bool = False


class Glimpse(Struct, frozen=True):
    """`event`: memory near a limit, or another rank that failed; `why` is a clause: "90 of 100 MiB … were in use"."""

    pid: int
    rank: str | None
    at_s: float
    event: Literal["memory", "failure"]
    why: str
    threads: tuple[GlimpseThread, ...]
