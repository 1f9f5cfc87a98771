"""What a reproducer has told on its side channel so far: JSON lines in a file, read as they come. Decides nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from harness.evidence.experiment import Told

VARIABLE = "HARNESS_STEPS"


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
            self.told = _take(self.told, json.loads(line))
        return bool(whole)


def _take(told: Told, line: dict[str, Any]) -> Told:
    told = replace(told, ran=line.get("ran", told.ran), finished=told.finished or "finished" in line)
    if "at" in line:
        return replace(told, step=line["step"], at=line["at"])
    if "done" in line:
        return replace(told, steps_done=line["done"], checksum=line["checksum"])
    return told
