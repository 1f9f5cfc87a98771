"""Memory in a few words: peak, limit, growth with its fit, and its course to be drawn."""

from __future__ import annotations

from harness.diagnose.death.limits import tell_bytes
from harness.documents.verdict import Growth, MemoryUse
from harness.report.sections import Item


def list_memory(use: MemoryUse | None) -> list[Item]:
    if use is None or not use.peak_bytes:
        return []
    items = [Item(f"{_tell_peak(use)}; {_tell_limit(use)}")]
    if use.growth is not None:
        items.append(Item(tell_growth(use.growth)))
    if use.swap_bytes:
        items.append(Item(f"swapped out: {tell_bytes(use.swap_bytes)} at most"))
    if len(use.course) > 2:
        items.append(Item(f"0 to {tell_bytes(max(use.course))}", course=use.course))
    return items


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
