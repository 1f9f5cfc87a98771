"""What the command had to say last: the last whole line before the words of its death, over all its channels.

Pure. Whether a line explains anything is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from harness.diagnose.death.last_words import Place
from harness.diagnose.death.matching import Finding
from harness.diagnose.death.reading import Reading
from harness.documents.verdict import Progress
from harness.evidence.run import Part


def find_last_line(finding: Finding, reading: Reading) -> Progress | None:
    """The last real line before the death's own text, and a progress bar only as what it is."""
    cut_off = tuple(channel.name for channel in reading.evidence.channels if channel.case_error)
    said = sorted(_list_said(finding, reading, cut_off), key=lambda line: line.at_s)
    if not said:
        return Progress(None, None, None, None, cut_off=cut_off) if cut_off else None
    whole = [line for line in said if not line.drawn]
    last = whole[-1] if whole else None
    ended_s = reading.culprit.ended_s
    age = round(max(0.0, ended_s - last.at_s), 1) if last and ended_s is not None else None
    drawn = said[-1].text if said[-1].drawn else None
    return Progress(None, None, last.text if last else None, age, unfinished_line=drawn, cut_off=cut_off)


class _Said(NamedTuple):
    """`drawn`: it was overwritten again and again, or has no end yet."""

    at_s: float
    text: str
    drawn: bool


def _list_said(finding: Finding, reading: Reading, cut_off: tuple[str, ...]) -> Iterator[_Said]:
    """Of every channel what was printed before the death's own words."""
    for transcript in reading.transcripts:
        if transcript.name in cut_off:
            continue  # what is last in the kept copy is not what was printed last
        at_s = 0.0  # of a log whose lines have no time: in their order
        for part in transcript.parts:
            for number in range(_first_death_line(part, finding, reading)):
                at_s = part.times_s[number] or at_s
                if text := part.lines[number].strip():
                    is_open = part.unfinished and number == len(part.lines) - 1
                    yield _Said(at_s, text, is_open or number in part.redrawn)


def _first_death_line(part: Part, finding: Finding, reading: Reading) -> int:
    """Where the words of this very death begin: not a line of the program's, and no older failure that it got over."""
    got_over = {str(item.end) for item in reading.words.exceptions} - {str(item.end) for item in reading.exceptions}
    sources = [ground.source.rpartition(":") for ground in finding.grounds if ground.source not in got_over]
    numbers = [place.number - 1 for place in _death_places(reading) if place.file == part.file]
    numbers += [int(number) - 1 for file, _, number in sources if file == part.file]
    return min(numbers, default=len(part.lines))


def _death_places(reading: Reading) -> Iterator[Place]:
    if reading.dump is not None:
        yield reading.dump.place
    yield from (item.place for item in reading.exceptions)
    about = [notice for notice in reading.words.notices if notice.signame == reading.signame]
    yield from (notice.place for notice in about if notice.pid is not None and notice.pid == reading.culprit.pid)
    yield from [notice.place for notice in about if notice.pid is None][-1:]
