"""Where the scenarios are, and how to read what each declares about itself."""

from __future__ import annotations

from pathlib import Path

from harness.capture.experiment.reproducers import read_literals as read_literals

SCENARIOS = Path(__file__).parents[1] / "zoo" / "scenarios"
