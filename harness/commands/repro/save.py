"""`--save-repro`: the smallest arm that failed, as files that can be attached to an upstream issue."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

from harness.capture.experiment.reproducers import Reproducer
from harness.capture.run.gathered.environment import read_environment
from harness.commands.repro.standalone import pin_requirements, write_standalone
from harness.documents.repro import FAULTS, Run
from harness.errors import HarnessError
from harness.evidence.experiment import Patient
from harness.evidence.text.redaction import redact
from harness.evidence.text.undecoded import encode_document


def save_failing_arm(
    directory: Path, runs: Sequence[Run], known: dict[str, Reproducer], patients: dict[str, Patient], scale: str
) -> tuple[str, ...]:
    """The paths that were written; none when nothing failed."""
    failed = [run for run in runs if run.state in FAULTS]
    if not failed:
        return ()
    names = list(known)
    run = min(failed, key=lambda one: (names.index(one.name), one.step or 0))
    patient, reproducer = patients[run.python], known[run.name]
    pins = pin_requirements(reproducer.needs, patient)
    variables = redact(read_environment())
    script = write_standalone(reproducer.path.read_text(), run, scale, patient, pins, variables)
    installed = sorted(f"{name}=={version}" for name, version in patient.packages.items())
    about = [
        f"# {platform.platform()}, Python {patient.version}",
        *(f"# {key}={value}" for key, value in variables.items()),
    ]
    files = {
        f"{run.name}_{run.arm}.py".replace("-", "_"): _without_home(script),
        "requirements.txt": "\n".join(pins) + "\n",
        "environment.txt": _without_home("\n".join([*about, *installed]) + "\n"),
        "verdict.json": _without_home(encode_document(run.verdict).decode() + "\n"),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(text)
    except OSError as error:
        hint = f"ls -ld {directory}"
        raise HarnessError(
            f"The reproducer could not be written to {directory}: {error.strerror}.", hint=hint
        ) from error
    return tuple(str(directory / name) for name in files)


def _without_home(text: str) -> str:
    """It is meant for others to read."""
    home = str(Path.home())
    return text if home == "/" else text.replace(home, "~")
