"""The Python processes of a machine, one row each: what `harness ps` shows. Facts only."""

from __future__ import annotations

from msgspec import Struct

from harness.evidence.gap import Gap


class ProcessRow(Struct, frozen=True):
    """`cpu`: cores used during the look. `quiet_s`: since the youngest file that it has open for writing was changed.

    `word`: busy, idle, stopped, traced, zombie, or waits for the disk.
    """

    pid: int
    ppid: int
    user: str
    argv: tuple[str, ...]
    age_s: float
    cpu: float
    rss_bytes: int
    threads: int
    quiet_s: float | None
    word: str


class ProcessTable(Struct, frozen=True):
    harness: str
    host: str | None
    looked_s: float
    rows: tuple[ProcessRow, ...]
    gaps: tuple[Gap, ...] = ()
    schema: str = "harness.ps/1"
