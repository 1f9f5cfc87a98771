"""Which reproducers there are, what their arms are, and what an interpreter has to run them with.

Reads their literals without importing them; asks an interpreter by running one with --describe. Judges nothing.
"""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from harness.capture.files.interpreter import ask_importing
from harness.capture.machine.payload import payload
from harness.errors import HarnessError, NotOurs, Unreadable
from harness.evidence.experiment import Arm, Options, Patient
from harness.evidence.text.answers import decode_json

BASE, CONTROL = "base", "control"
_ASKS_TORCH = "gru"
_DESCRIBE_S = 120.0


class _Described(Struct, frozen=True):
    """A version is null where the package's own metadata are damaged."""

    python: str
    packages: dict[str, str | None]
    devices: dict[str, str | None] | None


class Reproducer(NamedTuple):
    """`agree`: arms that must give the same losses, bit for bit."""

    name: str
    path: Path
    needs: tuple[str, ...]
    steps: dict[str, int]
    options: Options
    arms: dict[str, Arm]
    agree: tuple[tuple[str, ...], ...]


def list_reproducers() -> dict[str, Reproducer]:
    """By name; those that need least come first."""
    found = [read_reproducer(path) for path in sorted(payload("reproducers").glob("*.py"))]
    return {one.name: one for one in sorted(found, key=lambda one: len(one.needs))}


def read_reproducer(path: Path) -> Reproducer:
    said = read_literals(path)
    options: Options = said["OPTIONS"]
    name = said["NAME"]
    return Reproducer(
        name=name,
        path=path,
        needs=tuple(said["NEEDS"]),
        steps={scale: shape["steps"] for scale, shape in said["SHAPES"].items()},
        options=options,
        arms={arm: _read_arm(name, arm, options, said["ARMS"]) for arm in said["ARMS"]},
        agree=tuple(tuple(group) for group in said["AGREE"]),
    )


def read_literals(path: Path) -> dict[str, Any]:
    """What a file says of itself in capitals, without importing it."""
    literals = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(name := node.targets[0], ast.Name) and name.id.isupper():
            try:
                literals[name.id] = ast.literal_eval(node.value)
            except ValueError:
                continue  # not a literal: nothing that we need
    return literals


def _read_arm(name: str, arm: str, options: Options, arms: dict[str, dict[str, Any]]) -> Arm:
    own = dict(arms[arm])
    against = None if arm == BASE else own.pop("against", BASE)
    reference = options if against is None else {**options, **arms[against]}
    chosen = {**options, **own}
    changed = {key: value for key, value in chosen.items() if reference[key] != value}
    return Arm(name, arm, chosen, against, changed)


def ask_patient(python: str) -> Patient:
    """What is installed for an interpreter, and which devices its torch can use. NotOurs: it may not be run."""
    try:
        ask_importing(python)
    except NotOurs:
        raise
    except HarnessError as error:
        return Patient(python, why=str(error).rstrip("."))
    command = [python, str(list_reproducers()[_ASKS_TORCH].path), "--describe"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HARNESS_")}
    try:
        answer = subprocess.run(
            command, capture_output=True, timeout=_DESCRIBE_S, check=False, stdin=subprocess.DEVNULL, env=environment
        )
        said = decode_json(answer.stdout, _Described)
    except (OSError, subprocess.SubprocessError) as error:
        return Patient(python, why=str(error))
    except Unreadable:  # torch itself does not load: the arms will show it, under supervision
        return Patient(python)
    packages = {name: version for name, version in said.packages.items() if version is not None}
    return Patient(python, said.python, packages, said.devices)
