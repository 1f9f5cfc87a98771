"""What the report of a verdict says: verdict first, next step last, plain words, readable at 2 a.m.

Does not decide anything, and does not know how it will look.
"""

from __future__ import annotations

import shlex
from pathlib import PurePath

from harness.diagnose.death.sender import is_told_to_leave
from harness.diagnose.words import cut_words
from harness.documents.verdict import Call, Component, Document, Hypothesis, Stack
from harness.report.living import list_living, tell_cost
from harness.report.memory import list_memory
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

_LONGEST_LINE = 200
_ONE_LINERS = frozenset({"python-exception", "interrupted", "exit-nonzero", "clean"})


def list_sections(document: Document) -> list[Section]:
    """The whole report, or little where one line says it all."""
    if document.verdict.kind in _ONE_LINERS and document.verdict.process.role == "main":
        return keep_told(_list_few(document))
    return keep_told(_list_all(document))


def _list_all(document: Document) -> list[Section]:
    verdict = document.verdict
    return [
        head_verdict(document),
        make_section("fault", verdict.fault),
        make_section("component", _component(verdict.component, verdict.faulting_image)),
        make_section("stack", _stack(verdict.stack), "drawing"),
        make_section("process", _process(document)),
        make_section("memory", list_memory(document.memory)),
        make_section("grounds", [Item(ground.fact, source=ground.source) for ground in verdict.grounds]),
        make_section("against", verdict.against),
        *list_living(document.living),
        list_gaps(document.gaps, fixes=True),
        make_section("ruled out", _hypotheses(document.differential, "ruled-out")),
        make_section("still open", _hypotheses(document.differential, "open")),
        make_section("output", _last_output(document)),
        make_section("stopped", tell_cost(document)),
        list_known(verdict.upstream),
        *list_remedies(verdict.remedies),
        make_section("next", verdict.next, "next"),
        make_section("core", _core(document.outcome.core)),
        make_section("case", document.case),
    ]


def _list_few(document: Document) -> list[Section]:
    verdict = document.verdict
    in_headline = verdict.kind == "clean"  # the first one
    return [
        head_verdict(document),
        make_section("but", verdict.against[in_headline:]),
        make_section("signal", [ground.fact for ground in verdict.grounds if is_told_to_leave(ground)]),
        make_section("output", _last_output(document) if verdict.kind == "exit-nonzero" else _tell_cut_off(document)),
        make_section("next", verdict.next, "next"),
        make_section("case", document.case),
    ]


def head_verdict(document: Document) -> Section:
    verdict = document.verdict
    return make_headline(verdict.headline, verdict.kind, verdict.status)


def _component(component: Component | None, faulting: Component | None) -> list[str]:
    """The two are told apart by image and function; only one of them has the offset."""
    rows = [name_component(component)] if component else []
    if faulting and (component is None or (faulting.image, faulting.function) != (component.image, component.function)):
        rows.append(f"faulting image: {name_component(faulting)}")
    return rows


def _stack(stack: Stack | None) -> list[str]:
    if stack is None:
        return []
    more = f"… and {stack.more:,} more frame{'s' * (stack.more != 1)}"
    return [*(_tell_call(call) for call in stack.calls), *([more] if stack.more else [])]


def _tell_call(call: Call) -> str:
    """`walk (list.cpp:3) in libwalk.so`; Python's without an image."""
    place = f" ({PurePath(call.file).name}:{call.line})" if call.file else ""
    image = f" in {PurePath(call.image).name}" if call.image else ""
    function = call.function or (_plus(call.offset) if call.offset else "?")
    times = f"  × {call.times:,}" if call.times > 1 else ""
    return f"{function}{place}{image}{times}"


def _core(path: str | None) -> Item | None:
    if path is None:
        return None
    return Item(path, aside="for gdb: gunzip -k it first" if path.endswith(".gz") else None)


def name_component(image: Component) -> str:
    owner = f" ({image.distribution} {image.version or ''})".replace(" )", ")") if image.distribution else ""
    function = f"{image.function}  " if image.function else ""
    offset = f" {_plus(image.offset)}" if image.offset and image.offset not in function else ""
    return f"{function}{image.image}{offset}{owner}"


def _plus(offset: str) -> str:
    return offset if offset.startswith("+") else f"+{offset}"


def _process(document: Document) -> list[str]:
    """Of one that is no Python, or another than the command itself, also what it was; a version only of a Python."""
    process, target, outcome = document.verdict.process, document.target, document.outcome
    python = f", Python {process.python}" if process.python else ""
    thread = f", thread {process.tid}" if process.tid not in (None, process.pid) else ""
    is_target = process.pid == target.pid
    command = [f"its command: {shlex.join(process.argv)}"] if process.argv and not is_target else []
    if outcome.state == "alive":
        if process.argv and process.python is None and is_target:
            command = [f"its command: {shlex.join(process.argv)}"]
        role = "pid" if is_target else f"{process.role} of {target.pid}: pid"
        since = f", running for {tell_duration(outcome.duration_s or 0.0)}" if is_target else ""
        where = f" on {process.host}" if process.host else ""
        return [f"{role} {process.pid}{where}{thread}{python}{since}", *command]
    if process.role == "main":
        after = f", after {tell_duration(outcome.duration_s or 0.0)}"
        return [f"pid {process.pid}{thread}{python}{after}"] if process.pid else []
    ended = f"; the command ended with exit status {outcome.exit_code}" if outcome.exit_code is not None else ""
    return [f"{process.role} {process.pid or '(pid unknown)'}{thread}{python}{ended}", *command]


def _hypotheses(rows: tuple[Hypothesis, ...], state: str) -> list[str]:
    return [f"{row.hypothesis}: {row.because}" for row in rows if row.state == state]


def _tell_cut_off(document: Document) -> list[str]:
    cut_off = document.progress.cut_off if document.progress else ()
    return (
        [f"{' and '.join(cut_off)} could not be kept to the end: what came last there is not known"] if cut_off else []
    )


def _last_output(document: Document) -> list[str]:
    progress = document.progress
    if progress is None:
        return []
    rows = []
    if progress.last_line:
        age = (
            f", {tell_duration(progress.last_output_age_s)} before the end"
            if progress.last_output_age_s is not None
            else ""
        )
        rows.append(f"last line: {cut_words(progress.last_line, _LONGEST_LINE)!r}{age}")
    if progress.unfinished_line:
        rows.append(f"a line that was still being redrawn: {cut_words(progress.unfinished_line, _LONGEST_LINE)!r}")
    rows += _tell_cut_off(document)
    return rows


def tell_duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
