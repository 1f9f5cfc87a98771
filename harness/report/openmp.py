"""The answer of `harness openmp` for a terminal: ruling and reason first, then the table, then what to do.

Does not decide anything.
"""

from __future__ import annotations

import textwrap

from harness.diagnose.openmp import Look, OpenmpDocument, Ruling, list_copies, name_place, tell_step
from harness.evidence.openmp import Blas, Census, Place, Runtime
from harness.evidence.transcript import clean_for_terminal
from harness.report.text import rows, tell_remedy

_BOLD, _OFF = "\x1b[1m", "\x1b[0m"
_STATES = {"bound": "bound to", "linked": "links to", "lazy": "not called yet", "unresolved": "bound to nothing"}


def render(document: OpenmpDocument, *, width: int, color: bool) -> str:
    ruling = document.ruling
    head = f"harness: {ruling.headline}  [{ruling.kind}, {ruling.status}]"
    lines = textwrap.wrap(clean_for_terminal(head), width, subsequent_indent="  ", break_on_hyphens=False)
    if color:
        lines = [f"{_BOLD}{line}{_OFF}" for line in lines]
    lines += rows("why", [ruling.explanation], width, color)
    for look in document.looks:
        lines += _look(look, width, color, alone=len(document.looks) == 1)
    lines += _advice(ruling, width, color)
    return "\n".join(lines) + "\n"


def _look(look: Look, width: int, color: bool, *, alone: bool) -> list[str]:
    census = look.census
    lines = rows("looked at", [_subject(census)], width, color)
    if not alone:
        lines += rows("", [f"{look.ruling.kind}: {look.ruling.headline}"], width, color)
    lines += rows("steps", [tell_step(step) for step in census.steps], width, color)
    lines += rows("runtimes", _runtimes(census), width, color)
    lines += rows("callers", _callers(census), width, color)
    lines += rows("blas", [_blas(blas) for blas in census.blas], width, color)
    lines += rows("settings", [f"{s.name}={s.value}  [{s.source}]" for s in census.settings], width, color)
    lines += rows("absent", census.absent, width, color)
    return lines + rows("not seen", [f"{gap.what}: {gap.why}" for gap in census.gaps], width, color)


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


def _advice(ruling: Ruling, width: int, color: bool) -> list[str]:
    lines = rows("known as", [f"{known.ref}: {known.why}" for known in ruling.upstream], width, color)
    lines += rows("do", [tell_remedy(remedy) for remedy in ruling.remedies if remedy.safe], width, color)
    lines += rows("do not", [tell_remedy(remedy) for remedy in ruling.remedies if not remedy.safe], width, color)
    verify = dict.fromkeys(remedy.verify for remedy in ruling.remedies if remedy.verify)
    lines += rows("verify", list(verify), width, color)
    return lines + rows("next", [ruling.next] if ruling.next else [], width, color)
