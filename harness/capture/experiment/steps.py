"""What a reproducer has told on its side channel so far: JSON lines in a file, read as they come. Decides nothing."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from harness.errors import Unreadable
from harness.evidence.experiment import Told
from harness.evidence.text.answers import decode_json

VARIABLE = "HARNESS_STEPS"


class _Line(Struct, frozen=True):
    ran: dict[str, Any] | None = None
    step: int | None = None
    at: str | None = None
    done: int | None = None
    checksum: str | None = None
    finished: bool = False


class StepFile:
    """Reads on where it stopped; a line that is not complete yet waits for the next time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.told = Told()

    def read(self) -> bool:
        """Whether there was anything new."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return False
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            with contextlib.suppress(Unreadable):  # a dying process may have torn it
                self.told = _take(self.told, decode_json(line, _Line))
        return bool(whole)


def _take(told: Told, line: _Line) -> Told:
    told = replace(told, ran=told.ran if line.ran is None else line.ran, finished=told.finished or line.finished)
    if line.at is not None:
        return replace(told, step=line.step, at=line.at)
    if line.done is not None:
        return replace(told, steps_done=line.done, checksum=line.checksum)
    return told
