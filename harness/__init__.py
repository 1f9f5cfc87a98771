"""Which native component killed or stalled this Python process, on what evidence, and what to do about it."""

from __future__ import annotations

from harness.beat import beat as beat
from harness.version import __version__ as __version__


def enable(cases: str | None = None) -> None:
    """Captures a crash of this process, where its launch command cannot be changed. Limits: harness.in_process."""
    from harness.in_process import enable as start

    start(cases)
