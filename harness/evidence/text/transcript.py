"""The kept output of a channel as lines with times, the way a person at the terminal saw it.

Reads the files a relay wrote; does not interpret what the lines say.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from pathlib import Path

from harness.evidence.run import Part, Transcript
from harness.evidence.text.answers import read_bounded
from harness.evidence.text.undecoded import show_bytes

# No message that matters is longer; megabytes without a newline would keep a pattern busy for minutes.
_LONGEST_LINE = 2000
_MARKS_PER_FILE = 20000  # native/relay.c
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")
_MARK = re.compile(rb"^([0-9]{1,18}) ([0-9]{1,19})\n", re.MULTILINE)
_MOST_BYTES = 4 << 20  # of a file, to which a relay gives one MiB, and its successor another
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# What changes the order of what is seen, or is not seen at all: Default_Ignorable_Code_Point of Unicode 16 (directions,
# joiners, fillers, selectors of variants, tags), ends of lines that are no newline, and annotations.
_UNSEEN = re.compile(
    "[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
UNSHOWN = re.compile("|".join(pattern.pattern for pattern in (_ESCAPES, _CONTROLS, _UNSEEN)))


def read_transcript(directory: Path, name: str, started_ns: int) -> Transcript:
    """Unreadable, or OSError: one of its files is something else than a relay has left there."""
    parts = [
        _read_part(directory / file, started_ns)
        for file in (f"{name}.log", f"{name}.tail.old", f"{name}.tail")
        if os.path.lexists(directory / file)
    ]
    return Transcript(name=name, parts=tuple(parts))


def part_from_text(file: str, text: str) -> Part:
    """A log somebody handed over: lines without times."""
    lines, redrawn = _visible_lines(text)
    return Part(file=file, lines=lines, times_s=(None,) * len(lines), redrawn=redrawn)


def clean_for_terminal(text: str) -> str:
    """Without what would act on the terminal or deceive its reader: output of a process is untrusted text."""
    return show_bytes(_UNSEEN.sub("", _CONTROLS.sub("", _ESCAPES.sub("", text))))


def _read_part(path: Path, started_ns: int) -> Part:
    raw = read_bounded(path, _MOST_BYTES, follow=False)
    lines, redrawn = _visible_lines(raw.decode("utf-8", "replace"))
    marks = _read_marks(path.with_name(path.name + ".times"))
    return Part(
        file=path.name,
        lines=lines,
        times_s=_line_times(raw, len(lines), marks, started_ns),
        redrawn=redrawn,
        unfinished=bool(raw) and not raw.endswith(b"\n"),
    )


def _visible_lines(text: str) -> tuple[tuple[str, ...], frozenset[int]]:
    lines, redrawn = [], set()
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else []):
        _, drawn_over, shown = line.rstrip("\r").rpartition("\r")
        if drawn_over:
            redrawn.add(number)
        lines.append(clean_for_terminal(_shorten(shown)))
    return tuple(lines), frozenset(redrawn)


def _shorten(line: str) -> str:
    """Both ends: a message is often printed behind a long unfinished line."""
    half = _LONGEST_LINE // 2
    return line if len(line) <= _LONGEST_LINE else f"{line[:half]} … {line[-half:]}"


def _read_marks(path: Path) -> list[tuple[int, int]]:
    """(offset, nanoseconds) pairs; a torn last line (relay killed, disk full) is left out."""
    if not os.path.lexists(path):
        return []
    marks = read_bounded(path, _MOST_BYTES, follow=False)
    return [(int(offset), int(time_ns)) for offset, time_ns in _MARK.findall(marks)]


def _line_times(raw: bytes, count: int, marks: list[tuple[int, int]], started_ns: int) -> tuple[float | None, ...]:
    """When the last byte of each line arrived, to the mark before it. Null where there was no room for more marks."""
    if not marks:
        return (None,) * count
    first_offset = marks[0][0]
    offsets = [offset for offset, _ in marks]
    times: list[float | None] = []
    end = -1
    for _ in range(count):
        newline = raw.find(b"\n", end + 1)
        end = len(raw) if newline == -1 else newline
        mark = bisect_right(offsets, first_offset + max(end - 1, 0)) - 1
        is_known = mark < _MARKS_PER_FILE - 1
        times.append((marks[mark][1] - started_ns) / 1e9 if is_known else None)
    return tuple(times)
