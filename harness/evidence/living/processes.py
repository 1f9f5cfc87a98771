"""The Python processes of a machine, one row each: what `harness ps` shows. Facts only."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from harness.evidence.gap import Gap

_SUSPECT = {"locked": 2, "stopped": 2, "waits for the disk": 1}


class ProcessRow(Struct, frozen=True):
    """`cpu`: cores used during the look. `quiet_s`: since the youngest file that it has open for writing was changed;
    null also where all of those are empty.

    `host`: null on this machine.

    `word`: busy, stopped (during the whole look), stopped now and then, traced, frozen, zombie, waits for the disk; of
    one that is asleep what its main thread is in: locked (every thread waits for another one of the process, none with
    a timeout, and no handler of a signal could help), listening (for connections), polling (other descriptors),
    sleeping, reading, writing, opening a file, waits for a child, waits for a signal, waits for a file lock; else idle.
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
    host: str | None = None


class ProcessTable(Struct, frozen=True):
    """`host`: the one that was asked; null for this machine, and for several. A host without an answer is a gap.

    `address`: how a process of the host of the one to look at first is named to harness, with {pid} in it.
    """

    harness: str
    host: str | None
    looked_s: float
    rows: tuple[ProcessRow, ...]
    gaps: tuple[Gap, ...] = ()
    address: str = "{pid}"
    schema: str = "harness.ps/1"


def choose_next(rows: Sequence[ProcessRow]) -> ProcessRow | None:
    """The one to look at first: what is most likely stuck, then the busiest."""
    return max(rows, key=lambda row: (_SUSPECT.get(row.word, 0), row.cpu, row.rss_bytes), default=None)
