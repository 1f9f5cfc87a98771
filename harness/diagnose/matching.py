"""How a row of the table of kinds is tried against a reading: its texts, its signals, its own rule.

Knows no kind by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from harness.diagnose.reading import Reading
from harness.diagnose.verdict import Ground, Remedy, Status

EXCEPTION = "exception"  # the text stands in the uncaught exception
EXIT = "exit"  # the text is among the last words of a process that left with a non-zero status


class Marker(NamedTuple):
    """A text that explains a death, if the death is one of `ends`. `sample`: a file of tests/data/logs, or text."""

    pattern: re.Pattern[str]
    ends: tuple[str, ...]
    sample: str


class Finding(NamedTuple):
    status: Status
    detail: str
    grounds: tuple[Ground, ...]
    groups: dict[str, str]
    against: tuple[str, ...] = ()


class Kind(NamedTuple):
    """`signals`: those that are this kind by themselves, each with the detail it stands for.

    `headline` is formatted with {detail}, {after} (": detail" or nothing), {where} (process and Python line), {signal},
    {sender} and the named groups of the marker. `names_limit`: what was refused has a limit behind it, to be named.
    """

    name: str
    meaning: str
    headline: str
    markers: tuple[Marker, ...] = ()
    signals: Mapping[str, str] = {}
    rule: Callable[[Reading], Finding | None] | None = None
    remedies: tuple[Remedy, ...] = ()
    next: str | None = None
    ends_well: bool = False
    names_limit: bool = False


def marker(pattern: str, ends: str, sample: str) -> Marker:
    return Marker(re.compile(pattern, re.MULTILINE), tuple(ends.split()), sample)


def match(kind: Kind, reading: Reading) -> Finding | None:
    if reading.exit_code == 0:
        return kind.rule(reading) if kind.rule and kind.ends_well else None
    for marker in kind.markers:
        if finding := _match_marker(marker, reading):
            return finding
    if reading.signame is not None and reading.signame in kind.signals:
        return Finding(_status_of_death(reading), kind.signals[reading.signame], (), {})
    return kind.rule(reading) if kind.rule else None


def _match_marker(marker: Marker, reading: Reading) -> Finding | None:
    ended_by = reading.signame or (EXIT if reading.culprit.ending else None)
    if EXCEPTION in marker.ends and reading.final is not None and (found := marker.pattern.search(reading.chain)):
        certain = not reading.is_log and reading.final.thread is None
        ground = Ground(f"uncaught {reading.final.sentence}", str(reading.final.end))
        return Finding("established" if certain else "supported", found[0].rstrip(": "), (ground,), _groups(found))
    if ended_by is not None and ended_by not in marker.ends:
        return None
    seen = reading.last_words(marker.pattern)
    if seen is None or (ended_by is None and marker.ends == (EXCEPTION,)):
        return None
    found, place = seen
    status: Status = "established" if reading.is_printed_by_culprit(place) else "supported"
    text = " ".join(found[0].split())
    return Finding(status, text, (Ground(f"printed: {text}", str(place)),), _groups(found))


def _groups(found: re.Match[str]) -> dict[str, str]:
    return {name: value or "" for name, value in found.groupdict().items()}


def _status_of_death(reading: Reading) -> Status:
    culprit = reading.culprit
    return "established" if culprit.seen and culprit.linked and not reading.is_log else "supported"
