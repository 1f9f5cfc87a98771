"""Paints sections for a terminal or a log: a label, what it says beside it, wrapped, in colours where those are shown.

Does not decide what is said.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from typing import TypedDict

from harness.evidence.text.transcript import clean_for_terminal
from harness.report.sections import Item, Section, Table

_LABEL = 11
_BARS = "▁▂▃▄▅▆▇█"
_BOLD, _RED, _DIM, _OFF = "\x1b[1m", "\x1b[31m", "\x1b[2m", "\x1b[0m"


class Look(TypedDict):
    width: int
    color: bool


def look_of(fd: int) -> Look:
    """As wide and as coloured as what `fd` leads to can show."""
    terminal = os.isatty(fd)
    width = min(shutil.get_terminal_size((110, 0)).columns, 110) if terminal else 110
    return Look(width=max(width, 40), color=terminal and "NO_COLOR" not in os.environ)


def paint(sections: Iterable[Section | Table], *, width: int, color: bool, terminal: bool = False) -> str:
    """`terminal`: somebody looks at it now, so that values over time are drawn."""
    lines: list[str] = []
    for section in sections:
        if isinstance(section, Table):
            lines += ["", *_paint_table(section, width, color), ""]
        elif section.role in ("alarm", "answer", "notice"):
            lines += _paint_headline(section, width, color)
        elif section.wrap:
            lines += _paint_rows(section.label, tell_items(section.items, terminal=terminal), width, color)
        else:
            texts = tell_items(section.items, terminal=terminal)
            lines += [f"{_head(section.label, index)}{clean_for_terminal(text)}" for index, text in enumerate(texts)]
    return "\n".join(lines) + "\n"


def tell_headline(section: Section) -> str:
    """In one line, however long."""
    return clean_for_terminal(f"{section.label}: {'; '.join(map(_tell, section.items))}")


def tell_items(items: Iterable[Item], *, terminal: bool) -> list[str]:
    return [line for item in items for line in _tell_lines(item, terminal)]


def _tell_lines(item: Item, terminal: bool) -> Iterator[str]:
    if not item.course:
        yield _tell(item)
    elif terminal:
        yield f"{sparkline(item.course)}  {_tell(item)}"
    yield from (f"> {line}" for line in item.quoted)


def _tell(item: Item) -> str:
    aside = f"  ({item.aside})" if item.aside else ""
    source = f"  [{item.source}]" if item.source is not None else ""
    return f"{item.text}{aside}{source}"


def _paint_headline(section: Section, width: int, color: bool) -> list[str]:
    line = tell_headline(section)
    if not section.wrap:
        return [line]
    lines = textwrap.wrap(line, width, subsequent_indent="  ", break_on_hyphens=False)
    if color and section.role == "alarm":
        text = "\n".join(lines)
        return [f"{_BOLD}{_RED}{text}{_OFF}"]
    return [f"{_BOLD}{line}{_OFF}" for line in lines] if color and section.role == "answer" else lines


def _paint_rows(label: str, texts: Iterable[str], width: int, color: bool) -> list[str]:
    lines = []
    for index, text in enumerate(texts):
        head = _head(label, index)
        wrapped = textwrap.wrap(
            clean_for_terminal(text),
            width,
            initial_indent=head,
            subsequent_indent=" " * len(head),
            break_long_words=False,
            break_on_hyphens=False,
        )
        if color and wrapped:
            wrapped[0] = f"{_DIM}{head}{_OFF}{wrapped[0][len(head) :]}"
        lines += wrapped
    return lines


def _head(label: str, index: int) -> str:
    """The label stands on the first line, everything else under it."""
    return f"  {'' if index else label:<{_LABEL}}"


def _paint_table(table: Table, width: int, color: bool) -> list[str]:
    cells = [table.header, *table.rows]
    sizes = [max(len(row[column]) for row in cells) for column in range(len(table.header))]
    lines = []
    for row in cells:
        text = "  ".join(cell.ljust(size) for cell, size in zip(row, sizes, strict=True))
        lines.append(f"  {clean_for_terminal(text).rstrip()}"[: max(width, 80)])
    if color:
        lines[0] = f"{_DIM}{lines[0]}{_OFF}"
        for index, alarming in enumerate(table.alarming, start=1):
            if alarming:
                lines[index] = f"{_RED}{lines[index]}{_OFF}"
    return lines


def sparkline(values: tuple[int, ...]) -> str:
    """From zero, so that a small wobble looks small."""
    top = max(*values, 1)
    return "".join(_BARS[min(len(_BARS) - 1, value * len(_BARS) // (top + 1))] for value in values)
