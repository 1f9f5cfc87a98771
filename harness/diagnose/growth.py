"""Does memory grow, how fast, how steadily, and when would it reach its limit? A plateau is not growth.

Pure arithmetic over many samples; never two points.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from harness.documents.verdict import Growth

_LEAST_SAMPLES = 10
_LEAST_S = 5.0
_LEAST_RISE_BYTES = 16 << 20
_LEAST_RISE = 0.05  # of what there is at the end
_LEAST_FIT = 0.95  # r squared of the straight line
_STILL_RISING = 0.5  # the last third's slope against the whole window's
# The longest of these stretches before the end that grows steadily is the one that is told.
_STRETCHES = (1.0, 0.75, 0.5, 0.25)


def find_growth(times_s: Sequence[float], values: Sequence[int], room_bytes: int | None) -> Growth | None:
    """`room_bytes`: what is left below the limit. Null: flat, falling, a plateau, a sawtooth, or too little seen."""
    if len(times_s) < _LEAST_SAMPLES:
        return None
    span_s = times_s[-1] - times_s[0]
    for share in _STRETCHES:
        since_s = times_s[-1] - share * span_s
        window = [(at_s, value) for at_s, value in zip(times_s, values, strict=True) if at_s >= since_s]
        if growth := _fit(window, room_bytes):
            return growth
    return None


def _fit(window: list[tuple[float, int]], room_bytes: int | None) -> Growth | None:
    over_s = window[-1][0] - window[0][0]
    if len(window) < _LEAST_SAMPLES or over_s < _LEAST_S:
        return None
    slope, fit = fit_line(window)
    rise, final = slope * over_s, window[-1][1]
    if rise < max(_LEAST_RISE_BYTES, _LEAST_RISE * final) or fit < _LEAST_FIT or not _rises_on(window, slope):
        return None
    reaches_s = None if room_bytes is None else max(0.0, room_bytes / slope)
    return Growth(slope, round(over_s, 1), len(window), round(fit, 3), reaches_s)


def _rises_on(window: list[tuple[float, int]], slope: float) -> bool:
    """In its last third as well, and no stretch of silence hides what happened in between."""
    begin_s, end_s = window[0][0], window[-1][0]
    last = [point for point in window if point[0] >= end_s - (end_s - begin_s) / 3]
    longest_s = max(later[0] - earlier[0] for earlier, later in pairwise(window))
    if len(last) < 3 or longest_s > (end_s - begin_s) / 2:
        return False
    return fit_line(last)[0] >= _STILL_RISING * slope


def fit_line(points: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """(slope, r squared) of the line of least squares."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    xx = sum((x - mean_x) ** 2 for x, _ in points)
    yy = sum((y - mean_y) ** 2 for _, y in points)
    xy = sum((x - mean_x) * (y - mean_y) for x, y in points)
    if xx == 0 or yy == 0:
        return 0.0, 0.0
    return xy / xx, xy * xy / (xx * yy)
