"""Memory in one row: peak, limit, growth with its fit; a sparkline where somebody looks at a terminal."""

from __future__ import annotations

from harness.diagnose.limits import tell_bytes
from harness.diagnose.verdict import Growth, MemoryUse

_BARS = "▁▂▃▄▅▆▇█"


def tell_memory(use: MemoryUse | None, *, terminal: bool) -> list[str]:
    if use is None or not use.peak_bytes:
        return []
    rows = [f"{_tell_peak(use)}; {_tell_limit(use)}"]
    if use.growth is not None:
        rows.append(tell_growth(use.growth))
    if use.swap_bytes:
        rows.append(f"swapped out: {tell_bytes(use.swap_bytes)} at most")
    if terminal and len(use.course) > 2:
        rows.append(f"{sparkline(use.course)}  0 to {tell_bytes(max(use.course))}")
    return rows


def _tell_peak(use: MemoryUse) -> str:
    when = "" if use.peak_s is None else f" at {tell_time(use.peak_s)}"
    if use.largest_bytes is None and use.peak_s is None:
        return f"peak {tell_bytes(use.peak_bytes)} in one of its processes, which one is not known"
    many = f" in {use.processes} processes" if use.processes > 1 else ""
    largest = ""
    if use.processes > 1 and use.largest_bytes is not None:
        largest = f", the largest {tell_bytes(use.largest_bytes)} (process {use.largest_pid})"
    return f"peak {tell_bytes(use.peak_bytes)}{many}{when}{largest}"


def _tell_limit(use: MemoryUse) -> str:
    if use.limit_bytes is None:
        return "no limit is known"
    used = "" if use.limit_used_bytes is None else f", which had {tell_bytes(use.limit_used_bytes)} when most was seen"
    return f"the limit is {tell_bytes(use.limit_bytes)} ({use.limit}{used})"


def tell_growth(growth: Growth) -> str:
    rate = f"{tell_bytes(growth.bytes_per_s)}/s over the last {tell_time(growth.over_s)}"
    reaches = growth.reaches_limit_s
    when = "" if reaches is None else f"; would reach the limit in {tell_time(reaches)}"
    return f"grew {rate}, steadily ({growth.samples} samples, fit {growth.fit:.2f}){when}"


def tell_time(seconds: float) -> str:
    for unit, length_s in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def sparkline(values: tuple[int, ...]) -> str:
    """From zero, so that a small wobble looks small."""
    top = max(*values, 1)
    return "".join(_BARS[min(len(_BARS) - 1, value * len(_BARS) // (top + 1))] for value in values)
