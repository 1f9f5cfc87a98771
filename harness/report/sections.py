"""What a report says and in which order: sections, which list what is said, and which a painter lays out.

Nothing here knows of widths, colours or markup. A painter reads sections and nothing else, so one more way of showing a
report (terminal.py is one) is one file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeVar

from msgspec import Struct

from harness.documents.verdict import Remedy, Upstream
from harness.evidence.gap import Gap

Role = Literal["alarm", "answer", "notice", "facts", "drawing", "remedy", "danger", "next"]


class Item(Struct, frozen=True):
    """One thing that is said. `aside`: why, or what mends it; `source`: where it is from; `quoted`: words of others.

    `course`: values over time from zero, for a painter that can draw them; the text is then their scale, and says
    nothing without the drawing.
    """

    text: str
    aside: str | None = None
    source: str | None = None
    quoted: tuple[str, ...] = ()
    course: tuple[int, ...] = ()


class Section(Struct, frozen=True):
    """Items of one label. `wrap` false: they are there to be copied, and are not broken into lines.

    The role of a headline says how bad it is: alarm, answer, notice. `drawing`: lines that belong together, whose
    leading spaces count. `remedy` is safe to do, `danger` is advised against, `next` is to be typed.
    """

    label: str
    items: tuple[Item, ...]
    role: Role = "facts"
    wrap: bool = True


class Table(Struct, frozen=True):
    """`alarming`: of each row, whether it shows a fault."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    alarming: tuple[bool, ...]


_Part = TypeVar("_Part", bound=Section | Table)


def make_section(
    label: str, what: Iterable[str | Item] | str | Item | None, role: Role = "facts", *, wrap: bool = True
) -> Section:
    """One thing, several, or nothing."""
    given = () if what is None else (what,) if isinstance(what, str | Item) else what
    return Section(label, tuple(one if isinstance(one, Item) else Item(one) for one in given), role, wrap)


def make_headline(headline: str, *words: str, role: Role = "alarm") -> Section:
    """`words`: its kind and how sure it is."""
    return Section("harness", (Item(headline, source=", ".join(words) or None),), role)


def keep_told(parts: Iterable[_Part]) -> list[_Part]:
    """Without the sections that say nothing."""
    return [part for part in parts if isinstance(part, Table) or part.items]


def list_remedies(remedies: Iterable[Remedy]) -> list[Section]:
    """The safe ones, those that are advised against, and how to see whether they have helped."""
    remedies = list(remedies)
    return [
        make_section("do", [_tell_remedy(remedy) for remedy in remedies if remedy.safe], "remedy"),
        make_section("do not", [_tell_remedy(remedy) for remedy in remedies if not remedy.safe], "danger"),
        make_section("verify", dict.fromkeys(remedy.verify for remedy in remedies if remedy.verify), "next"),
    ]


def _tell_remedy(remedy: Remedy) -> Item:
    return Item(remedy.do, aside=remedy.why)


def list_known(upstream: Iterable[Upstream]) -> Section:
    return make_section("known as", [f"{known.ref}: {known.why}" for known in upstream])


def list_gaps(gaps: Iterable[Gap], *, fixes: bool = False) -> Section:
    return make_section("not seen", [Item(f"{gap.what}: {gap.why}", aside=gap.fix if fixes else None) for gap in gaps])
