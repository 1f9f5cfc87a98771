"""What a glance at a watched process shows: its threads on CPU, its memory, the age of its output. Facts only."""

from __future__ import annotations

from msgspec import Struct

from harness.evidence.living.look import HotSpot, ThreadState


class ThreadSight(Struct, frozen=True):
    """`cpu`: the share of one core since the last sample."""

    tid: int
    name: str
    state: ThreadState
    cpu: float


class Sight(Struct, frozen=True):
    """`threads`: those on CPU first. `moving`: the counters that rose since the last sample, with by how much.

    `hot`: the Python lines on CPU, by the last few glances at them; most seen first. `rests_s`: for how long nothing at
    all has moved.
    """

    pid: int
    argv: tuple[str, ...]
    processes: int
    threads: tuple[ThreadSight, ...]
    cpu: float
    rss_bytes: int
    output_age_s: float | None
    moving: tuple[str, ...]
    hot: tuple[HotSpot, ...] = ()
    rests_s: float = 0.0
