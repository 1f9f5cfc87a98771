"""Durations as users write them: seconds, or 90s, 5m, 2h."""

from __future__ import annotations

import re

from harness.errors import UsageError

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None:
        raise UsageError(f"{text!r} is no duration.", hint="a number of seconds, or 90s, 5m, 2h")
    return float(match[1]) * _UNITS[match[2]]
