"""What loading really costs: each array is accessed once in a child, with the user's interpreter and its numpy.

An array that does not fit is not tried: measuring must not be what fills the machine.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec

from harness.capture.files.interpreter import ask_importing
from harness.capture.machine.payload import payload
from harness.errors import HarnessError, Unreadable
from harness.evidence.arrays import Array, ArrayFile, Measured, Room
from harness.evidence.text.answers import decode_json

# An array is tried when it needs no more than this share of what can be had.
_SHARE = 0.8
_START_S = 60.0
_BYTES_PER_S = 20e6  # slower than any disk worth measuring; compressed with lzma


class _Row(msgspec.Struct):
    name: str
    grown_bytes: int | None = None
    peak_bytes: int | None = None
    seconds: float | None = None
    mapped: bool | None = None
    why_not: str | None = None


class _Answer(msgspec.Struct):
    rows: list[_Row]
    numpy: str | None
    error: str | None


def measure_arrays(python: str, file: ArrayFile, room: Room) -> tuple[Measured, ...]:
    """HarnessError: the interpreter does not work or has no numpy."""
    ask_importing(python)
    left_out = {array.name: why for array in file.arrays if (why := _why_not(array, room))}
    names = [array.name for array in file.arrays if array.name not in left_out]
    rows = [Measured(file.path, name, None, None, None, why_not=why) for name, why in left_out.items()]
    if names:
        deadline_s = _START_S + sum(array.ram_bytes or 0 for array in file.arrays) / _BYTES_PER_S
        answer = _ask(python, [str(Path(file.path).resolve()), *names], deadline_s)
        rows += [Measured(file.path, **msgspec.structs.asdict(row)) for row in answer.rows]
    order = {array.name: index for index, array in enumerate(file.arrays)}
    return tuple(sorted(rows, key=lambda row: order[row.name]))


def _why_not(array: Array, room: Room) -> str | None:
    if array.trouble:
        return array.trouble
    if array.ram_bytes is None:
        return "pickled: never unpickled by harness"
    if room.available_bytes is not None and array.ram_bytes > room.available_bytes * _SHARE:
        return "not tried: it would not fit"
    return None


def _ask(python: str, words: list[str], deadline_s: float) -> _Answer:
    """Away from the current directory, which would come before the installed packages."""
    try:
        child = subprocess.run(
            [python, "-", *words],
            input=payload("probes/arrays.py").read_bytes(),
            capture_output=True,
            timeout=deadline_s,
            cwd="/",
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise HarnessError(f"{python} could not be asked: {error}.", hint=f"{python} --version") from error
    try:
        answer = decode_json(child.stdout, _Answer)
    except Unreadable as error:
        last = (child.stderr.decode(errors="replace").strip().splitlines() or [f"status {child.returncode}"])[-1]
        raise HarnessError(f"The child that loads the arrays gave no answer: {last}", hint="harness doctor") from error
    if answer.error:
        hint = f"{python} -m pip install numpy" if "numpy" in answer.error else f"{python} -c 'import numpy'"
        raise HarnessError(f"{python} cannot load it: {answer.error}.", hint=hint)
    return answer
