"""The answer of `harness repro`: what was found, the table of arms, the component, what to launch and what to avoid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from harness.diagnose.decision import BASE, Advice, Decision
from harness.diagnose.trial import FAULTS, Run
from harness.evidence.experiment import Patient, Plan
from harness.evidence.transcript import clean_for_terminal
from harness.report.text import name_component, paint_headline, rows, tell_duration

_SHOWN = ("torch", "faiss-cpu", "numpy")
_HEADER = ("ARM", "DIFFERS IN", "OUTCOME", "STEPS", "TIME")


class ReproDocument(Struct, frozen=True):
    """`complete`: every arm that was planned has its row. `case`: where it is kept, for --resume."""

    harness: str
    case: str | None
    plan: Plan
    patients: tuple[Patient, ...]
    runs: tuple[Run, ...]
    decision: Decision
    complete: bool
    saved: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    schema: str = "harness.repro/1"


def render_repro(document: ReproDocument, *, width: int, color: bool) -> str:
    decision = document.decision
    line = f"harness: {decision.headline}  [repro, {decision.status}]"
    lines = [paint_headline(line, width, color and decision.exit_code != 0)]
    lines += rows("python", [_tell_patient(patient) for patient in document.patients], width, color)
    lines += rows("note", document.notes, width, color)
    lines += ["", *_render_table(document, width, color), ""]
    left_out = _tell_reasons(run for run in document.runs if run.state not in FAULTS)
    lines += rows("left out", [reason for reason in left_out if reason not in decision.because], width, color)
    lines += rows("unproven", _tell_reasons(run for run in document.runs if run.state in FAULTS), width, color)
    lines += rows("component", [name_component(decision.component)] if decision.component else [], width, color)
    lines += rows("because", decision.because, width, color)
    lines += rows("bounds", decision.bounds, width, color)
    lines += rows("do", [_tell_advice(advice) for advice in decision.recommend], width, color)
    lines += rows("do not", [_tell_advice(advice) for advice in decision.avoid], width, color)
    lines += rows("saved", document.saved, width, color)
    lines += rows("next", [decision.next] if decision.next else [], width, color)
    lines += rows("cases", list(dict.fromkeys(_cases(document.runs))), width, color)
    return "\n".join(lines) + "\n"


def _tell_patient(patient: Patient) -> str:
    if patient.why:
        return f"{patient.python}: {patient.why}"
    have = [f"{name} {patient.packages[name]}" for name in _SHOWN if name in patient.packages]
    lack = [f"no {name}" for name in _SHOWN if name not in patient.packages] if patient.version else []
    devices = patient.devices or {}
    here = [name for name, why in devices.items() if why is None]
    absent = [f"{name} ({why})" for name, why in devices.items() if why]
    parts = [f"Python {patient.version}" if patient.version else "torch does not load", *have, *lack]
    told = f"{patient.python}: {', '.join(parts)}"
    if here:
        told += f"; devices: {', '.join(here)}" + (f"; not here: {', '.join(absent)}" if absent else "")
    return told


def _render_table(document: ReproDocument, width: int, color: bool) -> list[str]:
    cells = [_HEADER, *(_cells(run, document) for run in document.runs)]
    sizes = [max(len(row[column]) for row in cells) for column in range(len(_HEADER))]
    lines = []
    for row in cells:
        text = "  ".join(cell.ljust(size) for cell, size in zip(row, sizes, strict=True))
        lines.append(f"  {clean_for_terminal(text).rstrip()}"[: max(width, 80)])
    if color:
        lines[0] = f"\x1b[2m{lines[0]}\x1b[0m"
        for index, run in enumerate(document.runs, start=1):
            if run.state in FAULTS:
                lines[index] = f"\x1b[31m{lines[index]}\x1b[0m"
    return lines


def _cells(run: Run, document: ReproDocument) -> tuple[str, ...]:
    several = [
        run.device if len({one.device for one in document.runs}) > 1 else "",
        f"python {1 + document.plan.pythons.index(run.python)}" if len(document.plan.pythons) > 1 else "",
        f"#{run.repeat}" if document.plan.repeat > 1 else "",
    ]
    return (
        " ".join(word for word in (run.name, run.arm, *several) if word),
        _tell_difference(run),
        tell_outcome(run),
        _tell_steps(run),
        tell_duration(run.seconds) if run.seconds else "-",
    )


def _tell_difference(run: Run) -> str:
    told = ", ".join(f"{key} {value}" for key, value in run.changed.items()) or "-"
    return told if run.against in (None, BASE) else f"{told} (against {run.against})"


def tell_outcome(run: Run) -> str:
    if run.valid is False:
        return f"invalid ({run.state})"
    if run.state in FAULTS and run.verdict:
        signal = run.verdict.outcome.signal
        return run.verdict.verdict.kind + (f", {signal}" if signal else "")
    return {"not-run": "not run", "ended": "ended from outside"}.get(run.state, run.state)


def _tell_steps(run: Run) -> str:
    if run.state in ("clean", "not-run") or run.step is None:
        return f"{run.steps_done} of {run.steps_asked}"
    verb = "died" if run.state == "fault" else "stood" if run.state == "hang" else "ended"
    return f"{verb} at {run.step} of {run.steps_asked}, in {run.at}"


def _tell_reasons(runs: Iterable[Run]) -> list[str]:
    """Why they do not count; those with the same reason on one line."""
    reasons: dict[str, list[str]] = {}
    for run in runs:
        if run.why and not run.counts:
            reasons.setdefault(run.why, []).append(f"{run.name} {run.arm}")
    return [f"{', '.join(dict.fromkeys(who))}: {why}" for why, who in reasons.items()]


def _tell_advice(advice: Advice) -> str:
    return f"{advice.do}  ({advice.because})" if advice.because else advice.do


def _cases(runs: Sequence[Run]) -> list[str]:
    return [run.verdict.case for run in runs if run.verdict and run.verdict.case]
