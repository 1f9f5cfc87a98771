"""The answer of `harness repro`: what was found, the table of arms, the component, what to launch and what to avoid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.diagnose.experiment.decision import BASE
from harness.documents.repro import FAULTS, Advice, ReproDocument, Run
from harness.evidence.experiment import Patient
from harness.report.sections import Item, Role, Section, Table, keep_told, make_headline, make_section
from harness.report.terminal import paint
from harness.report.verdict import name_component, tell_duration

_SHOWN = ("torch", "faiss-cpu", "numpy")
_HEADER = ("ARM", "DIFFERS IN", "OUTCOME", "STEPS", "TIME")


def render_repro(document: ReproDocument, *, width: int, color: bool) -> str:
    return paint(list_repro_sections(document), width=width, color=color)


def list_repro_sections(document: ReproDocument) -> list[Section | Table]:
    decision = document.decision
    left_out = _tell_reasons(run for run in document.runs if run.state not in FAULTS)
    role: Role = "alarm" if decision.exit_code != 0 else "notice"
    parts: list[Section | Table] = [
        make_headline(decision.headline, "repro", decision.status, role=role),
        make_section("python", [_tell_patient(patient) for patient in document.patients]),
        make_section("note", document.notes),
        _list_arms(document),
        make_section("left out", [reason for reason in left_out if reason not in decision.because]),
        make_section("unproven", _tell_reasons(run for run in document.runs if run.state in FAULTS)),
        make_section("component", name_component(decision.component) if decision.component else None),
        make_section("because", decision.because),
        make_section("bounds", decision.bounds),
        make_section("do", [_tell_advice(advice) for advice in decision.recommend], "remedy"),
        make_section("do not", [_tell_advice(advice) for advice in decision.avoid], "danger"),
        make_section("saved", document.saved),
        make_section("next", decision.next, "next"),
        make_section("cases", dict.fromkeys(_cases(document.runs))),
    ]
    return keep_told(parts)


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


def _list_arms(document: ReproDocument) -> Table:
    rows = tuple(_cells(run, document) for run in document.runs)
    return Table(_HEADER, rows, alarming=tuple(run.state in FAULTS for run in document.runs))


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


def _tell_advice(advice: Advice) -> Item:
    return Item(advice.do, aside=advice.because)


def _cases(runs: Sequence[Run]) -> list[str]:
    return [run.verdict.case for run in runs if run.verdict and run.verdict.case]
