"""Which native component killed or stalled this Python process, on what evidence, and what to do about it."""

from __future__ import annotations

from harness.pulse import beat as beat

__version__ = "0.1.0"


def enable(cases: str | None = None) -> None:
    """Captures a crash of this process, where its launch command cannot be changed. Limits: harness.commands.enable."""
    from harness.commands.enable import enable as start

    start(cases)
