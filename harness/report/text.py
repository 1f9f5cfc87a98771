"""The report for a terminal: verdict first, next step last, wrapped, plain words, readable at 2 a.m.

Does not decide anything.
"""

from __future__ import annotations

import os
import shlex
import shutil
import textwrap
from pathlib import PurePath
from typing import TypedDict

from harness.diagnose.killers import is_told_to_leave
from harness.diagnose.verdict import Call, Component, Document, Hypothesis, Remedy, Stack
from harness.diagnose.words import cut_words
from harness.evidence.gap import Gap
from harness.evidence.transcript import clean_for_terminal
from harness.report.living import list_living_rows, tell_cost
from harness.report.memory import tell_memory

_LABEL = 11
_LONGEST_LINE = 200
_ONE_LINERS = frozenset({"python-exception", "interrupted", "exit-nonzero", "clean"})
_BOLD, _RED, _DIM, _OFF = "\x1b[1m", "\x1b[31m", "\x1b[2m", "\x1b[0m"


def render(document: Document, *, width: int, color: bool, terminal: bool = False) -> str:
    """The whole report, or one line where one line says it all."""
    lines = [paint_headline(verdict_line(document), width, color)]
    if document.verdict.kind in _ONE_LINERS and document.verdict.process.role == "main":
        in_headline = document.verdict.kind == "clean"  # the first one
        lines += rows("but", document.verdict.against[in_headline:], width, color)
        told = [ground.fact for ground in document.verdict.grounds if is_told_to_leave(ground)]
        lines += rows("signal", told, width, color)
        output = _last_output(document) if document.verdict.kind == "exit-nonzero" else _tell_cut_off(document)
        lines += rows("output", output, width, color)
        lines += rows("next", [document.verdict.next] if document.verdict.next else [], width, color)
        lines += rows("case", [document.case] if document.case else [], width, color)
        return "\n".join(lines) + "\n"
    verdict = document.verdict
    lines += rows("fault", [verdict.fault] if verdict.fault else [], width, color)
    lines += rows("component", _component(verdict.component, verdict.faulting_image), width, color)
    lines += rows("stack", _stack(verdict.stack), width, color)
    lines += rows("process", _process(document), width, color)
    lines += rows("memory", tell_memory(document.memory, terminal=terminal), width, color)
    lines += rows("grounds", [f"{ground.fact}  [{ground.source}]" for ground in verdict.grounds], width, color)
    lines += rows("against", verdict.against, width, color)
    for label, texts in list_living_rows(document.living):
        lines += rows(label, texts, width, color)
    lines += rows("not seen", [_tell_gap(gap) for gap in document.gaps], width, color)
    lines += rows("ruled out", _hypotheses(document.differential, "ruled-out"), width, color)
    lines += rows("still open", _hypotheses(document.differential, "open"), width, color)
    lines += rows("output", _last_output(document), width, color)
    lines += rows("stopped", tell_cost(document), width, color)
    lines += rows("known as", [f"{known.ref}: {known.why}" for known in verdict.upstream], width, color)
    lines += rows("do", [tell_remedy(remedy) for remedy in verdict.remedies if remedy.safe], width, color)
    lines += rows("do not", [tell_remedy(remedy) for remedy in verdict.remedies if not remedy.safe], width, color)
    verify = dict.fromkeys(remedy.verify for remedy in verdict.remedies if remedy.verify)
    lines += rows("verify", list(verify), width, color)
    lines += rows("next", [verdict.next] if verdict.next else [], width, color)
    lines += rows("core", _core(document.outcome.core), width, color)
    lines += rows("case", [document.case] if document.case else [], width, color)
    return "\n".join(lines) + "\n"


def render_line(document: Document, *, width: int, color: bool) -> str:
    """For -q."""
    return paint_headline(verdict_line(document), width, color) + "\n"


class Look(TypedDict):
    width: int
    color: bool


def look_of(fd: int) -> Look:
    """As wide and as coloured as what `fd` leads to can show."""
    terminal = os.isatty(fd)
    width = min(shutil.get_terminal_size((110, 0)).columns, 110) if terminal else 110
    return Look(width=max(width, 40), color=terminal and "NO_COLOR" not in os.environ)


def verdict_line(document: Document) -> str:
    verdict = document.verdict
    return clean_for_terminal(f"harness: {verdict.headline}  [{verdict.kind}, {verdict.status}]")


def paint_headline(line: str, width: int, color: bool) -> str:
    text = "\n".join(textwrap.wrap(clean_for_terminal(line), width, subsequent_indent="  ", break_on_hyphens=False))
    return f"{_BOLD}{_RED}{text}{_OFF}" if color else text


def rows(label: str, texts: list[str] | tuple[str, ...], width: int, color: bool) -> list[str]:
    """A label on the first line, everything else under it."""
    lines = []
    for index, text in enumerate(texts):
        head = f"  {label if index == 0 else '':<{_LABEL}}"
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


def _core(path: str | None) -> list[str]:
    if path is None:
        return []
    return [f"{path}  (for gdb: gunzip -k it first)" if path.endswith(".gz") else path]


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


def _tell_gap(gap: Gap) -> str:
    return f"{gap.what}: {gap.why}" + (f"  ({gap.fix})" if gap.fix else "")


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


def tell_remedy(remedy: Remedy) -> str:
    return f"{remedy.do}  ({remedy.why})" if remedy.why else remedy.do


def tell_duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
