"""One arm of an experiment: how it ended, and whether it was what it claims to be. Pure.

An arm that did not differ from what it is compared with is invalid: no evidence, whatever happened in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from harness.diagnose.living.kinds import exit_code_of
from harness.documents.repro import FAULTS, Run, State
from harness.documents.verdict import Document
from harness.errors import EXIT_FAULT
from harness.evidence.experiment import Arm, Patient, Told

NOT_HERE = 77
_USAGE = 2
_FROM_OUTSIDE = frozenset({"killed", "terminated", "interrupted"})
_NOT_RUN = "not run: "


def describe_run(
    arm: Arm, patient: Patient, device: str, repeat: int, steps: int, seconds: float, told: Told,
    document: Document | None, *, hung: bool = False, why: str | None = None,
) -> Run:  # fmt: skip
    state, reason = _find_state(told, document, hung)
    return Run(
        name=arm.name,
        arm=arm.arm,
        changed=arm.changed,
        options=arm.options,
        against=arm.against,
        device=device,
        python=patient.python,
        repeat=repeat,
        state=state,
        valid=None,
        why=why or reason,
        steps_asked=steps,
        steps_done=told.steps_done,
        step=told.step,
        at=told.at,
        checksum=told.checksum if told.finished else None,
        seconds=round(seconds, 2),
        ran=told.ran,
        verdict=None if state in ("clean", "not-run") else document,
    )


def _find_state(told: Told, document: Document | None, hung: bool) -> tuple[State, str | None]:
    if document is None:
        return "not-run", "its supervisor failed"
    kind, code = document.verdict.kind, document.outcome.exit_code
    if hung:
        if document.outcome.state != "alive":
            return "slow", "no step came any more, and it could not be looked at"
        stuck = exit_code_of(document) == EXIT_FAULT
        return ("hang", None) if stuck else ("slow", "no step came any more; from outside it was not provably stuck")
    if code == NOT_HERE:
        return "not-run", _last_words(document).removeprefix(_NOT_RUN)
    if code == _USAGE and not told.steps_done:
        return "not-run", _last_words(document)
    if kind == "clean":
        return ("clean", None) if told.finished else ("not-run", "it ended well without a step: it did not run at all")
    if kind in _FROM_OUTSIDE:
        return "ended", "it was ended from outside, which says nothing about the arm"
    return "fault", None


def _last_words(document: Document) -> str:
    line = document.progress.last_line if document.progress else None
    return line or "it left at once, without a word"


def check_runs(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Each with `valid`, by what it and the arm that it is compared with have reported."""
    return tuple(_check(run, runs) for run in runs)


def _check(run: Run, runs: Iterable[Run]) -> Run:
    if run.state in ("not-run", "ended", "slow"):
        return replace(run, valid=None)
    seen_device = run.ran.get("device")
    if seen_device is not None and seen_device != [run.device]:
        return replace(run, valid=False, why=f"it ran on {', '.join(seen_device)}, not on {run.device}")
    for factor, asked in run.options.items():  # also of a base: with too few steps nothing is accumulated
        if run.state not in FAULTS and _see(run, factor) is None:
            return replace(run, valid=False, why=f"it never showed that {factor} was {asked}")
    references = [one for one in runs if one.place == run.place and one.arm == run.against]
    for factor, asked in run.changed.items():
        seen = _see(run, factor)
        if seen is None:
            return replace(run, valid=None, why=f"it ended before it could show that {factor} was {asked}")
        if not _is(seen, asked):
            return replace(run, valid=False, why=f"asked for {factor} {asked}, it ran with {tell_seen(seen)}")
        same = [one for one in references if _see(one, factor) == seen]
        if same:
            told = f"{factor} was {tell_seen(seen)} in both"
            return replace(run, valid=False, why=f"it did not differ from {run.against}: {told}")
    return replace(run, valid=True)


def _see(run: Run, factor: str) -> Any:
    """What it reported. Calls of the cache are counted: none is off."""
    if factor == "clear_cache":
        return ("on" if run.ran.get(factor) else "off") if run.ran else None
    return run.ran.get(factor)


def _is(seen: Any, asked: str | int) -> bool:
    """Threads are reported by each runtime: all of them must have what was asked for."""
    if isinstance(seen, dict):
        return bool(seen) and all(value == asked for value in seen.values())
    return bool(seen == asked)


def tell_seen(seen: Any) -> str:
    if isinstance(seen, dict):
        return ", ".join(f"{key} {value}" for key, value in seen.items())
    return str(seen)
