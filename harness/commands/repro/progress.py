"""One line on a terminal: which arm runs, at which step, and about how long all of it will take.

In a log a line for each arm that is done, so that nobody has to guess whether anything happens.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time

from harness.evidence.experiment import Told

_EVERY_S = 0.2


class Progress:
    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0
        self._shown = os.isatty(2)
        self._begun = time.monotonic()
        self._drawn_at = 0.0
        self._title, self._steps = "", 0

    def start(self, title: str, steps: int) -> None:
        self._title, self._steps, self._drawn_at = title, steps, 0.0
        self.tick(Told())

    def tick(self, told: Told) -> None:
        now = time.monotonic()
        if self._shown and now - self._drawn_at >= _EVERY_S:
            self._drawn_at = now
            at = f"step {told.step or told.steps_done} of {self._steps}" + (f", {told.at}" if told.at else "")
            self._write(f"\r\x1b[K[{self._done + 1}/{self._total}] {self._title}: {at}; {self._tell_time()}")

    def finish(self, line: str) -> None:
        self._done += 1
        self._write(f"\r\x1b[K  {line}\n" if self._shown else f"[{self._done}/{self._total}] {line}\n")

    def clear(self) -> None:
        if self._shown:
            self._write("\r\x1b[K")

    def _tell_time(self) -> str:
        spent_s = time.monotonic() - self._begun
        if not self._done:
            return f"{spent_s:.0f} s"
        left_s = spent_s / self._done * (self._total - self._done)
        return f"{spent_s:.0f} s, about {left_s:.0f} s left"

    def _write(self, text: str) -> None:
        columns = shutil.get_terminal_size().columns + 4  # the escape at its start
        with contextlib.suppress(OSError):
            os.write(2, text[:columns].encode() if not text.endswith("\n") else text.encode())
