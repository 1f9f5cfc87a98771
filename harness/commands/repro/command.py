"""`harness repro`: runs minimal programs, one change at a time, and says which native component fails, and with what.

Every arm is a process of its own, supervised as by `harness run`. Nothing falls back to another device.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import itertools
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from harness.capture.experiment.reproducers import Reproducer, ask_patient, list_reproducers
from harness.capture.files.interpreter import find_python, locate_python
from harness.commands.durations import parse_duration
from harness.commands.output import print_answer
from harness.commands.repro.arm import run_trial
from harness.commands.repro.progress import Progress
from harness.commands.repro.resume import Session, open_session, resume_session
from harness.commands.repro.save import save_failing_arm
from harness.diagnose.experiment.arm import check_runs, describe_run
from harness.diagnose.experiment.decision import Asked, decide
from harness.documents.repro import ReproDocument, Run
from harness.errors import EXIT_INTERRUPTED, HarnessError, NotOurs, UsageError
from harness.evidence.experiment import Arm, Patient, Plan, Told
from harness.report.repro import render_repro, tell_outcome
from harness.version import __version__

_ALL = "all"
_TORCH = "torch"
_NUMPY = "numpy"
_CPU, _MPS = "cpu", "mps"
_FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"
_HIDES_THE_FAULT = "KMP_DUPLICATE_LIB_OK"


class Task(NamedTuple):
    reproducer: Reproducer
    arm: Arm
    patient: Patient
    device: str
    repeat: int


def repro_command(arguments: argparse.Namespace) -> int:
    known = list_reproducers()
    plan = _make_plan(arguments, known) if arguments.names else None
    if arguments.resume:
        session = resume_session(plan, arguments.cases)
        patients = _ask_patients(session.plan, known)
    elif plan is None:
        raise UsageError(f"Which one? {', '.join(known)}, or all.", hint="harness repro all")
    else:
        patients = _ask_patients(plan, known)
        session = open_session(plan, arguments.cases)
    plan = session.plan
    tasks = list(_list_tasks(plan, known, patients))
    if not tasks:
        session.abandon()
        raise UsageError("None of these runs on that device.", hint=_tell_on_cpu(plan))
    try:
        interrupted = _run_all(tasks, session, plan, arguments.cases)
    except BaseException:
        session.abandon()
        raise
    return _answer(arguments, session, known, patients, tasks, interrupted=interrupted)


# What was asked for


def _make_plan(arguments: argparse.Namespace, known: dict[str, Reproducer]) -> Plan:
    names = tuple(known) if _ALL in arguments.names else tuple(dict.fromkeys(arguments.names))
    for name in names:
        if name not in known:
            near = next(iter(difflib.get_close_matches(name, known, 1)), _ALL)
            raise UsageError(
                f"There is no reproducer {name!r}; there are {', '.join(known)}.", hint=f"harness repro {near}"
            )
    arms = tuple(dict.fromkeys(arguments.arms or ()))
    there = {arm for name in names for arm in known[name].arms}
    for arm in arms:
        if arm not in there:
            raise UsageError(
                f"No arm is called {arm!r}; there are {', '.join(sorted(there))}.", hint="harness repro -h"
            )
    if arguments.repeat < 1 or (arguments.steps is not None and arguments.steps < 1):
        raise UsageError("--repeat and --steps need a number above 0.", hint="harness repro gru --repeat 3")
    return Plan(
        names=names,
        devices=tuple(dict.fromkeys(arguments.devices or (_CPU,))),
        pythons=tuple(dict.fromkeys(map(_find_python, arguments.pythons or (None,)))),
        arms=arms,
        repeat=arguments.repeat,
        scale=arguments.scale,
        steps=arguments.steps,
        timeout_s=parse_duration(arguments.arm_timeout),
    )


def _find_python(word: str | None) -> str:
    """One that does not exist becomes a row that says so, unless it is the only one."""
    try:
        return os.path.abspath(find_python(word, imports=True))  # noqa: PTH100 (a venv's link must not be followed)
    except NotOurs:
        raise
    except HarnessError:
        return str(word or "python3")


def _name_usual_python() -> str:
    try:
        return os.path.abspath(locate_python(None))  # noqa: PTH100
    except HarnessError:
        return "python3"


def _ask_patients(plan: Plan, known: dict[str, Reproducer]) -> dict[str, Patient]:
    patients: dict[str, Patient] = {}
    refused: list[HarnessError] = []
    for python in plan.pythons:
        try:
            patients[python] = ask_patient(python)
        except NotOurs as error:
            refused.append(error)
            patients[python] = Patient(python, why=str(error).rstrip("."))
    if all(patient.why for patient in patients.values()):
        why = next(iter(patients.values())).why
        raise HarnessError(f"{why}.", hint=refused[0].hint if refused else _tell_elsewhere(plan, known))
    reasons = [
        _why_no_device(device, patient) for patient in patients.values() for device in plan.devices if not patient.why
    ]
    if reasons and all(reasons):
        asked = any(patient.devices for patient in patients.values())
        hint = _tell_on_cpu(plan) if asked else _tell_elsewhere(plan, known)
        raise HarnessError(f"There is {reasons[0]}. Nothing was run on another device instead.", hint=hint)
    return patients


def _why_no_device(device: str, patient: Patient) -> str | None:
    if device == _CPU or (patient.devices is None and patient.version is None):  # torch does not load: a fault to show
        return None
    if patient.devices is None:
        return f"no {device}: {patient.python} has no torch"
    why = patient.devices.get(device)
    fallback = os.environ.get(_FALLBACK)
    told = f" ({_FALLBACK}={fallback} is set; it would hide which operations are missing)" if fallback else ""
    return f"no {device}: {why}{told}" if why else None


def _asked(plan: Plan) -> Asked:
    return Asked(plan, _name_usual_python())


def _tell_on_cpu(plan: Plan) -> str:
    return _asked(plan).tell_again(devices=(_CPU,))


def _tell_elsewhere(plan: Plan, known: dict[str, Reproducer]) -> str:
    python = _find_better_python(plan, known) or f"/path/to/a/python/with/{'/and/'.join(_list_needs(plan, known))}"
    return _asked(plan).tell_again(pythons=(python,))


def _find_better_python(plan: Plan, known: dict[str, Reproducer]) -> str | None:
    """The one that runs harness is not taken unasked: it may be another environment than the one that fails."""
    has_all = all(map(importlib.util.find_spec, _list_needs(plan, known)))
    return sys.executable if has_all and sys.executable not in plan.pythons else None


def _list_needs(plan: Plan, known: dict[str, Reproducer]) -> list[str]:
    """numpy comes with the others."""
    return list(dict.fromkeys(need for name in plan.names for need in known[name].needs if need != _NUMPY))


def _list_tasks(plan: Plan, known: dict[str, Reproducer], patients: dict[str, Patient]) -> Iterator[Task]:
    """By rounds, so that what is interrupted has compared something. faiss-cpu alone knows no other device."""
    for patient, repeat in itertools.product(patients.values(), range(1, plan.repeat + 1)):
        for device, name in itertools.product(plan.devices, plan.names):
            if device == _CPU or _TORCH in known[name].needs:
                for arm in _choose_arms(known[name], plan, device):
                    yield Task(known[name], arm, patient, device, repeat)


def _choose_arms(reproducer: Reproducer, plan: Plan, device: str) -> Iterable[Arm]:
    """A cpu has no cache to clear, so that arm is left out there, unless it is asked for."""
    for name, arm in reproducer.arms.items():
        if name in plan.arms or (not plan.arms and not (device == _CPU and "clear_cache" in arm.changed)):
            yield arm


# Running


def _run_all(tasks: list[Task], session: Session, plan: Plan, cases_dir: str | None) -> bool:
    """Whether it was interrupted. What is done is kept."""
    left = [task for task in tasks if not session.has(task.arm, task.device, task.patient.python, task.repeat)]
    progress = Progress(len(left))
    with _ended_by_signals():
        try:
            for task in left:
                steps = plan.steps or task.reproducer.steps[plan.scale]
                progress.start(f"{task.arm.name} {task.arm.arm}", steps)
                run = _run(task, plan, steps, cases_dir, progress.tick)
                session.add(run)
                progress.finish(
                    f"{run.name} {run.arm}: {tell_outcome(run)}, {run.steps_done} steps, {run.seconds:.1f} s"
                )
        except KeyboardInterrupt:
            return True
        finally:
            progress.clear()
    return False


def _run(task: Task, plan: Plan, steps: int, cases_dir: str | None, tick: Callable[[Told], None]) -> Run:
    why = task.patient.why or _why_no_device(task.device, task.patient)
    if why:
        return describe_run(task.arm, task.patient, task.device, task.repeat, steps, 0.0, Told(), None, why=why)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in task.arm.options.items()]
    argv = [task.patient.python, str(task.reproducer.path), "--device", task.device, "--scale", plan.scale]
    with tempfile.TemporaryDirectory(prefix="harness-repro-") as scratch:
        trial = run_trial([*argv, "--steps", str(steps), *words], cases_dir, Path(scratch), plan.timeout_s, tick)
    return describe_run(
        task.arm, task.patient, task.device, task.repeat, steps, trial.seconds, trial.told, trial.document,
        hung=trial.hung, why=trial.why,
    )  # fmt: skip


class _ended_by_signals:
    """SIGTERM and SIGHUP mean what Ctrl-C means: end the arm, tell what is known."""

    def __enter__(self) -> None:
        def interrupt(signo: int, frame: object) -> None:
            raise KeyboardInterrupt

        self._before = {
            signo: signal.signal(signo, interrupt)
            for signo in (signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(signo) == signal.SIG_DFL
        }

    def __exit__(self, *_: object) -> None:
        for signo, handler in self._before.items():
            signal.signal(signo, handler)


# Telling


def _answer(
    arguments: argparse.Namespace, session: Session, known: dict[str, Reproducer], patients: dict[str, Patient],
    tasks: list[Task], *, interrupted: bool,
) -> int:  # fmt: skip
    runs = check_runs(_in_order(session.runs, tasks))
    decision = decide(runs, {name: one.agree for name, one in known.items()}, _asked(session.plan))
    saved: tuple[str, ...] = ()
    if arguments.save_repro:
        saved = save_failing_arm(Path(arguments.save_repro), runs, known, patients, session.plan.scale)
    notes = [*_list_notes(session.plan, known, runs), *_list_better_pythons(session.plan, known, patients, runs)]
    if interrupted:
        notes.append(f"interrupted: {len(session.runs)} of {len(tasks)} arms are done and kept")
        decision = replace(decision, next=_tell_resume(session, arguments.cases))
    elif all(run.state == "not-run" for run in runs):
        decision = replace(decision, next=_tell_elsewhere(session.plan, known))
    document = ReproDocument(
        harness=__version__,
        case=str(session.case),
        plan=session.plan,
        patients=tuple(patients.values()),
        runs=runs,
        decision=decision,
        complete=not interrupted,
        saved=saved,
        notes=tuple(notes),
    )
    if interrupted:
        session.abandon()
    else:
        session.finish(document, render_repro(document, width=110, color=False))
    print_answer(document, render_repro, arguments.json)
    return EXIT_INTERRUPTED if interrupted else decision.exit_code


def _in_order(runs: list[Run], tasks: list[Task]) -> list[Run]:
    """As planned, also when some were run later, by --resume."""
    order = {
        (task.arm.name, task.arm.arm, task.device, task.patient.python, task.repeat): at
        for at, task in enumerate(tasks)
    }
    return sorted(runs, key=lambda run: order.get(run.key, len(order)))


def _tell_resume(session: Session, cases_dir: str | None) -> str:
    """Where no arm had ended, nothing is kept that could be continued."""
    if not session.runs:
        return _asked(session.plan).tell_again()
    return shlex.join(["harness", "repro", "--resume", *(["--cases", cases_dir] if cases_dir else [])])


def _list_better_pythons(
    plan: Plan, known: dict[str, Reproducer], patients: dict[str, Patient], runs: Iterable[Run]
) -> Iterator[str]:
    lacking = all(patient.devices is None for patient in patients.values())
    python = _find_better_python(plan, known)
    if lacking and python and any(run.state == "not-run" for run in runs):
        has = " and ".join(_list_needs(plan, known))
        yield f"the Python that harness itself runs on has {has}; to run it there: --python {python}"


def _list_notes(plan: Plan, known: dict[str, Reproducer], runs: Iterable[Run]) -> Iterator[str]:
    if value := os.environ.get(_HIDES_THE_FAULT):
        yield f"{_HIDES_THE_FAULT}={value} is set: it hides two OpenMP runtimes; without: env -u {_HIDES_THE_FAULT} …"
    yield from _list_arms_alone(plan, known)
    if left_out := [name for name in plan.names if _TORCH not in known[name].needs and _CPU not in plan.devices]:
        yield f"{', '.join(left_out)} knows no device but cpu and was left out; to run it: --device cpu"
    if ran := [run.ran for run in runs if run.device == _MPS and run.state != "not-run"]:
        fallbacks = {str(facts.get("mps_fallback", os.environ.get(_FALLBACK, "not set"))) for facts in ran}
        yield f"{_FALLBACK} was {', '.join(sorted(fallbacks))} in the arms on mps"


def _list_arms_alone(plan: Plan, known: dict[str, Reproducer]) -> Iterator[str]:
    chosen = [known[name].arms[arm] for name in plan.names for arm in plan.arms if arm in known[name].arms]
    for arm in chosen:
        if arm.against not in (None, *plan.arms):
            alone = f"{arm.name} {arm.arm} has nothing to be compared with: {arm.against} was not run"
            yield f"{alone}; to run it, too: --arm {arm.against}"
