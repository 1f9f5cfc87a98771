"""The answer of `harness openmp`: ruling and reason first, then the table, then what to do.

Does not decide anything.
"""

from __future__ import annotations

from harness.diagnose.environment.openmp import list_copies, name_place, tell_step
from harness.documents.openmp import Look, OpenmpDocument
from harness.evidence.openmp import Blas, Census, Place, Runtime
from harness.report.sections import (
    Item,
    Section,
    keep_told,
    list_gaps,
    list_known,
    list_remedies,
    make_headline,
    make_section,
)
from harness.report.terminal import paint

_STATES = {"bound": "bound to", "linked": "links to", "lazy": "not called yet", "unresolved": "bound to nothing"}


def render(document: OpenmpDocument, *, width: int, color: bool) -> str:
    return paint(list_openmp_sections(document), width=width, color=color)


def list_openmp_sections(document: OpenmpDocument) -> list[Section]:
    ruling, alone = document.ruling, len(document.looks) == 1
    return keep_told(
        [
            make_headline(ruling.headline, ruling.kind, ruling.status, role="answer"),
            make_section("why", ruling.explanation),
            *(section for look in document.looks for section in _list_look(look, alone=alone)),
            list_known(ruling.upstream),
            *list_remedies(ruling.remedies),
            make_section("next", ruling.next, "next"),
        ]
    )


def _list_look(look: Look, *, alone: bool) -> list[Section]:
    census = look.census
    ruled = [] if alone else [f"{look.ruling.kind}: {look.ruling.headline}"]
    return [
        make_section("looked at", [_subject(census), *ruled]),
        make_section("steps", [tell_step(step) for step in census.steps]),
        make_section("runtimes", _runtimes(census)),
        make_section("callers", _callers(census)),
        make_section("blas", [_blas(blas) for blas in census.blas]),
        make_section("settings", [Item(f"{one.name}={one.value}", source=one.source) for one in census.settings]),
        make_section("absent", census.absent),
        list_gaps(census.gaps),
    ]


def _subject(census: Census) -> str:
    python = f", Python {census.python}" if census.python else ""
    what = {
        "process": f"process {census.name}",
        "environment": f"the environment of {census.name}",
        "wheels": f"wheels: {census.name}",
        "imports": f"import {', then '.join(census.order)} with {census.name}",
    }[census.subject]
    return f"{what}{python}, {census.platform}: {census.images} native files"


def _runtimes(census: Census) -> list[str]:
    lines = []
    for runtime, callers in list_copies(census):
        facts = [
            f"at {runtime.place.base}" if runtime.place.base else "",
            "static copy" if runtime.static else "",
            "registered" if runtime.registered else "",
            "initialised" if runtime.initialised and not runtime.registered else "",
            "not initialised" if runtime.initialised is False else "",
            f"{runtime.threads} threads" if runtime.threads else "",
            "file replaced or removed since it was loaded" if runtime.place.deleted else "",
            "differs from its RECORD" if runtime.place.modified else "",
            f"{len(callers)} callers" if len(callers) != 1 else "1 caller",
            _own_helpers(census, runtime, len(callers)),
        ]
        version = f" {runtime.version}" if runtime.version else ""
        lines.append(f"{runtime.family}{version}  {name_place(runtime.place)}  {', '.join(filter(None, facts))}")
    return lines


def _own_helpers(census: Census, runtime: Runtime, counted: int) -> str:
    """Libraries of the runtime's own package: they call it, and are no reason for it to start."""
    calling = sum(any(b.runtime == runtime.place.image for b in caller.bindings) for caller in census.callers)
    return f"{calling - counted} of its own package" if calling > counted and not runtime.place.base else ""


def _callers(census: Census) -> list[str]:
    """Callers of one package that lead to one copy share a line."""
    groups: dict[tuple[str | None, str], list[Place]] = {}
    for caller in census.callers:
        for binding in caller.bindings:
            where = f"{_STATES[binding.state]} {_short(binding.runtime)}".rstrip()
            groups.setdefault((caller.place.distribution, where), []).append(caller.place)
    return [f"{_names(places)}  {where}" for (_, where), places in groups.items()]


def _names(places: list[Place]) -> str:
    if len(places) == 1:
        return name_place(places[0])
    first, others = name_place(places[0]), len(places) - 1
    return f"{first} and {others} other{'s' * (others > 1)} of it"


def _short(image: str | None) -> str:
    return image.rpartition("-packages/")[2] if image else ""


def _blas(blas: Blas) -> str:
    facts = [blas.config or "", f"{blas.threads} threads" if blas.threads else "", blas.threading or ""]
    return f"{blas.kind}  {name_place(blas.place)}  {', '.join(filter(None, facts))}".rstrip()
