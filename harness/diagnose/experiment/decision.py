"""All arms of an experiment in, one decision out: the component, how sure, what to launch now, what to avoid. Pure.

Counts and markers, no invented probabilities. Where nothing failed, how rare a fault could still be.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from harness.diagnose.experiment.factors import Contrast, contrast_factors, is_usable, tell_choice, tell_together
from harness.documents.repro import FAULTS, Advice, Decision, Run
from harness.documents.verdict import Remedy, Status
from harness.errors import EXIT_COULD_NOT_LOOK, EXIT_FAULT, EXIT_INCONCLUSIVE
from harness.evidence.experiment import Plan

BASE = "base"
_CONFIDENCE = 0.95
_REPEATS = 2
_MORE_REPEATS = 3
_LARGER = {"tiny": "small", "small": "seed"}
_WHOLE_TRAINING = "twotower"
_NOT_BIT_FOR_BIT = ("mps", "cuda")
_OPENMP = ("duplicate-openmp", "deadlock-openmp")


class Asked(NamedTuple):
    """`usual_python`: the one that is taken where none is named."""

    plan: Plan
    usual_python: str

    def tell_again(self, **changes: Any) -> str:
        """The command for the same with some of it changed; what is usual is left out."""
        plan = replace(self.plan, **changes)
        words = ["harness", "repro", *plan.names]
        for option, values, usual in (
            ("--device", plan.devices, self.plan.devices if self.plan.devices == ("cpu",) else ()),
            ("--python", plan.pythons, (self.usual_python,)),
            ("--arm", plan.arms, ()),
            ("--scale", (plan.scale,), ("tiny",)),
            ("--steps", (plan.steps,), (None,)),
            ("--repeat", (plan.repeat,), (1,)),
            ("--arm-timeout", (f"{plan.timeout_s:.12g}",), ("120",)),
        ):
            if values != usual:
                words += [word for value in values for word in (option, str(value))]
        return shlex.join(words)

    def tell_again_for(self, runs: Sequence[Run], **changes: Any) -> str:
        """Only what these ran: an arm that none of them has would be refused."""
        columns = zip(*(run.place for run in runs), strict=True)
        names, devices, pythons = (tuple(dict.fromkeys(column)) for column in columns)
        arms = tuple(arm for arm in self.plan.arms if arm in {run.arm for run in runs})
        return self.tell_again(names=names, devices=devices, pythons=pythons, arms=arms, **changes)


def decide(runs: Sequence[Run], agree: dict[str, Sequence[Sequence[str]]], asked: Asked) -> Decision:
    """`runs` with their validity; `agree`: by reproducer, the arms whose losses must be equal."""
    differing = list(find_differing(runs, agree))
    bounds = tuple(_tell_bounds(runs))
    faults = [run for run in runs if run.state in FAULTS]
    if faults:
        return _decide_fault(runs, faults, differing, bounds, asked)
    return _decide_no_fault(runs, differing, bounds, asked)


def bound_rate(steps: int) -> float:
    """Failures per step that are still possible, at 95 %, when none was seen in so many: the exact rule of three."""
    return float(1 - (1 - _CONFIDENCE) ** (1 / steps))


# Faults


def _decide_fault(
    runs: Sequence[Run], faults: list[Run], differing: list[str], bounds: tuple[str, ...], asked: Asked
) -> Decision:
    lead = _find_lead(faults)
    verdict = lead.verdict.verdict if lead.verdict else None
    same = [run for run in faults if _signature(run) == _signature(lead)]
    contrasts = [one for one in contrast_factors(runs) if one.place == lead.place]
    status, how = _find_status(lead, same, contrasts)
    others = {_signature(run): run for run in faults if _signature(run) != _signature(lead)}
    because = [how, *(_tell_failures(arm, runs) for arm in dict.fromkeys((run.place, run.arm) for run in same))]
    because += [one.tell() for one in contrasts]
    because += [f"another fault, in {_title(run)}: {_headline(run)}" for run in others.values()]
    remedies = verdict.remedies if verdict else ()
    return Decision(
        headline=f"{_tell_place(lead)}: {_headline(lead)}",
        component=verdict.component if verdict else None,
        status=status,
        because=(*because, *differing),
        recommend=(*_recommend(contrasts), *_from_remedies(remedies, safe=True)),
        avoid=(_avoid(lead, contrasts, runs), *_from_remedies(remedies, safe=False)),
        bounds=bounds,
        next=_next_after_fault(lead, same, [run for run in runs if run.place == lead.place], asked),
        exit_code=EXIT_FAULT,
    )


def _find_lead(faults: list[Run]) -> Run:
    """Proven before guessed, then the most frequent, then the smallest program."""
    counts = {_signature(run): sum(_signature(one) == _signature(run) for one in faults) for run in faults}
    return min(faults, key=lambda run: (not _is_established(run), -counts[_signature(run)]))


def _signature(run: Run) -> tuple[str | None, ...]:
    if run.verdict is None:
        return (run.state,)
    verdict = run.verdict.verdict
    component = verdict.component
    return verdict.kind, component.image if component else None


def _is_established(run: Run) -> bool:
    return (
        run.verdict is not None
        and run.verdict.verdict.status == "established"
        and run.verdict.verdict.component is not None
    )


def _find_status(lead: Run, same: list[Run], contrasts: list[Contrast]) -> tuple[Status, str]:
    if _is_established(lead):
        return "established", f"established by what was captured in {_title(lead)} when it {_tell_end(lead)}"
    if len(same) >= _REPEATS and any(one.repeated for one in contrasts):
        return "supported", f"{len(same)} runs ended the same way, and arms without it did not; no stack names it"
    return "hypothesis", "from what single runs did; no stack names it, and nothing was repeated"


def _tell_failures(arm: tuple[tuple[str, str, str], str], runs: Iterable[Run]) -> str:
    tried = [run for run in runs if (run.place, run.arm) == arm and run.state in ("clean", *FAULTS)]
    failed = [run for run in tried if run.state in FAULTS]
    where = ", ".join(dict.fromkeys(f"step {run.step} in {run.at}" for run in failed if run.step is not None))
    return f"{_title(failed[0])}: {len(failed)} of {len(tried)} failed{f', at {where}' if where else ''}"


def _title(run: Run) -> str:
    return f"{run.name} {run.arm}"


def _headline(run: Run) -> str:
    return run.verdict.verdict.headline if run.verdict else "it ended, and nothing says how"


def _tell_place(run: Run) -> str:
    """What failed, and where in it."""
    at = f" at step {run.step} of {run.steps_asked}, in {run.at}" if run.step is not None else ""
    return f"{run.name} {'stands still' if run.state == 'hang' else 'dies'}{at}"


def _tell_end(run: Run) -> str:
    return "stood still" if run.state == "hang" else "died"


def _recommend(contrasts: list[Contrast]) -> list[Advice]:
    return [Advice(one.advise(), one.because()) for one in contrasts]


def _avoid(lead: Run, contrasts: list[Contrast], runs: Iterable[Run]) -> Advice:
    """One sentence: half of what failed may be in an arm that is clean, and is recommended."""
    own: dict[str, Contrast] = {}
    for one in contrasts:
        if lead.options[one.factor] in one.failing:
            own.setdefault(one.factor, one)
    told = tell_together(list(own.values())) or ", ".join(tell_choice(*option) for option in lead.options.items())
    tried = [run for run in runs if run.place == lead.place and is_usable(run)]
    alike = [
        run
        for run in tried
        if (all(run.options[factor] in one.failing for factor, one in own.items()) if own else run.arm == lead.arm)
    ]
    failed = sum(run.state in FAULTS for run in alike)
    return Advice(f"Launch with {told}.", f"{lead.name} on {lead.device}: {failed} of {len(alike)} failed")


def _from_remedies(remedies: Iterable[Remedy], *, safe: bool) -> list[Advice]:
    return [Advice(remedy.do, remedy.why) for remedy in remedies if remedy.safe is safe]


def _next_after_fault(lead: Run, same: list[Run], around: list[Run], asked: Asked) -> str | None:
    if lead.verdict and lead.verdict.verdict.kind in _OPENMP:
        return lead.verdict.verdict.next
    if len(same) < _REPEATS and not _is_established(lead):
        return asked.tell_again_for(around, repeat=_MORE_REPEATS * asked.plan.repeat)
    return f"{asked.tell_again_for(around)} --save-repro DIR"


# No fault


def _decide_no_fault(runs: Sequence[Run], differing: list[str], bounds: tuple[str, ...], asked: Asked) -> Decision:
    clean = [run for run in runs if run.state == "clean" and run.valid]
    left = [run for run in runs if run not in clean]
    tried = [run for run in runs if run.state != "not-run"]
    reasons = [f"{_title(run)}: {run.why or run.state}" for run in left]
    exact = not {run.device for run in clean} & set(_NOT_BIT_FOR_BIT)
    if not tried:
        headline, status, code = f"Nothing could be run: {_first(reasons)}", "unknown", EXIT_COULD_NOT_LOOK
    elif differing:
        headline = "Nothing died, but numbers that must be equal are not"
        status, code = ("supported", EXIT_FAULT) if exact else ("hypothesis", EXIT_INCONCLUSIVE)
    elif not clean:
        headline, status, code = f"No arm counts: {_first(reasons)}", "unknown", EXIT_INCONCLUSIVE
    else:
        headline, status, code = _tell_no_fault(runs, clean), "supported", EXIT_INCONCLUSIVE if left else 0
    because = (*differing, *_group(reasons))
    return Decision(
        headline=headline,
        component=None,
        status=status,  # type: ignore[arg-type]
        because=because,
        recommend=(),
        avoid=(),
        bounds=bounds,
        next=_next_without_fault(clean, differing, asked),
        exit_code=code,
    )


def _first(reasons: list[str]) -> str:
    return reasons[0].partition(": ")[2] if reasons else "interrupted before the first arm had ended"


def _tell_no_fault(runs: Sequence[Run], clean: list[Run]) -> str:
    """Of the devices where something counts; and why nothing does on the others."""
    here = list(dict.fromkeys(run.device for run in clean))
    steps, arms = sum(run.steps_done for run in clean), f"{len(clean)} arm{'' if len(clean) == 1 else 's'}"
    told = [f"No fault in {steps:,} steps of {arms} on {', '.join(here)}"]
    tried = [run for run in runs if run.device in here]
    if len(tried) > len(clean):
        told.append(f"{len(tried) - len(clean)} of {len(tried)} arms do not count")
    for device in dict.fromkeys(run.device for run in runs if run.device not in here):
        others = [run for run in runs if run.device == device]
        verb = "ran" if all(run.state == "not-run" for run in others) else "counts"
        why = others[0].why or others[0].state
        told.append(f"nothing {verb} on {device}: {why.removeprefix(f'no {device}: ')}")
    return "; ".join(told)


def _group(reasons: list[str]) -> list[str]:
    """One line for each reason: thirty arms without torch are one fact."""
    by_reason: dict[str, list[str]] = {}
    for reason in reasons:
        who, _, why = reason.partition(": ")
        by_reason.setdefault(why, []).append(who)
    return [f"{', '.join(dict.fromkeys(who))}: {why}" for why, who in by_reason.items()]


def _next_without_fault(clean: list[Run], differing: list[str], asked: Asked) -> str | None:
    """One step further with one reproducer: with the whole training where it is one of them."""
    plan = asked.plan
    names = [name for name in plan.names if name in {run.name for run in clean}]
    if not names:
        return asked.tell_again(steps=None)
    name = _WHOLE_TRAINING if _WHOLE_TRAINING in names else names[0]
    mine = [run for run in clean if run.name == name]
    if differing:
        return asked.tell_again_for(clean, repeat=_MORE_REPEATS * plan.repeat)
    if plan.scale in _LARGER:
        return asked.tell_again_for(mine, scale=_LARGER[plan.scale], steps=None, repeat=1)
    return asked.tell_again_for(mine, repeat=_MORE_REPEATS) if plan.repeat < _MORE_REPEATS else None


def _tell_bounds(runs: Sequence[Run]) -> Iterable[str]:
    for place in dict.fromkeys(run.place for run in runs):
        base = [run for run in runs if run.place == place and run.arm == BASE]
        steps = sum(run.steps_done for run in base)
        if steps and all(run.state == "clean" and run.valid for run in base):
            name = f"{place[0]} on {place[1]}"
            rate = 1000 * bound_rate(steps)
            bound = f"this bounds the failure rate below {rate:.3g} per 1000 steps at 95%"
            yield f"{name}: no fault in {steps:,} steps: {bound}"


def find_differing(runs: Sequence[Run], agree: dict[str, Sequence[Sequence[str]]]) -> Iterable[str]:
    """Repeats of one arm, and arms that differ in nothing that enters the arithmetic, must give the same losses."""
    for place in dict.fromkeys(run.place for run in runs):
        mine = [run for run in runs if run.place == place and run.checksum is not None and run.valid]
        groups = [*agree.get(place[0], ()), *([run.arm] for run in mine)]
        told = set()
        for group in map(tuple, groups):
            sums: dict[str, list[str]] = {}
            for run in mine:
                if run.arm in group:
                    sums.setdefault(f"{run.checksum}/{run.steps_done}", []).append(f"{run.arm} #{run.repeat}")
            if len(sums) > 1 and group not in told:
                told.add(group)
                sides = " and ".join(", ".join(arms) for arms in sums.values())
                yield (
                    f"{place[0]} on {place[1]}: {sides} had the same seed and must have equal losses, and have not: "
                    "silent corruption, or a kernel that is not deterministic here"
                )
