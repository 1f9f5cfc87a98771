"""What the table is made of: how much to measure, a row, a note.

A goal comes from the project's issues and is compared, never asserted. "-" means that no goal was set.
"""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from tests.bench.measure import median_ratio


class Plan(NamedTuple):
    """How much of everything."""

    steps: int = 110  # 22 s on two cores of 2026
    pairs: int = 5
    repeats: int = 20
    streamed_bytes: int = 1024**3
    stream_pairs: int = 3
    lines: int = 200_000
    settle_s: float = 3.0
    window_s: float = 5.0
    amounts: tuple[int, ...] = (2_000, 8_000)  # of threads, traps, processes: does the cost of one grow?
    resident_gib: tuple[float, ...] = (0.5, 2.0, 6.0)
    threads: tuple[int, ...] = (4, 40, 400)
    looked_at: tuple[int, ...] = (10, 100, 1000)  # threads
    ranks: int = 64
    copies: tuple[int, ...] = (1, 2, 4)  # of a package


QUICK = Plan(15, 2, 5, 64 * 1024**2, 2, 20_000, 0.5, 1.0, (50, 200), (0.05, 0.1), (4, 8), (4, 8), 2, (1, 2))


class Row(NamedTuple):
    what: str
    ours: str
    peer: str
    ratio: str
    goal: str = "-"
    met: str = ""


class Note(NamedTuple):
    text: str


def met(condition: bool) -> str:
    return "yes" if condition else "no"


def spread(ours: list[float], peer: list[float]) -> str:
    if not all(peer):
        return "-"  # the peer's figure is too small to be measured
    middle, low, high = median_ratio(ours, peer)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def timing_row(what: str, ours: list[float], peer: list[float], unit: str = "s") -> Row:
    digits = 2 if unit == "s" else 1
    return Row(what, f"{median(ours):.{digits}f} {unit}", f"{median(peer):.{digits}f} {unit}", spread(ours, peer))
