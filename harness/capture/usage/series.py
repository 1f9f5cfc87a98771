"""A series of samples that never grows beyond a bound: a week of them takes the room of an hour, at less resolution.

Does not sample. Peak and low stay exact, with their times, whatever was dropped.
"""

from __future__ import annotations

MOST_POINTS = 512


class Series:
    """Each point is the greatest value of its stretch of time; the stretches double whenever the room is used up."""

    __slots__ = ("_latest", "_most", "_opened_s", "_spacing_s", "low", "low_s", "peak", "peak_s", "times_s", "values")

    def __init__(self, most: int = MOST_POINTS) -> None:
        self.times_s: list[float] = []
        self.values: list[int] = []
        self.peak = self.low = 0
        self.peak_s = self.low_s = 0.0
        self._latest: tuple[float, int] | None = None
        self._most = max(4, most)
        self._spacing_s = 0.0
        self._opened_s = 0.0

    def __len__(self) -> int:
        return len(self.values)

    @property
    def last(self) -> int | None:
        return None if self._latest is None else self._latest[1]

    def add(self, at_s: float, value: int) -> None:
        """Times never go back."""
        if self._latest is None or value > self.peak:
            self.peak, self.peak_s = value, at_s
        if self._latest is None or value < self.low:
            self.low, self.low_s = value, at_s
        self._latest = (at_s, value)
        if self.values and at_s - self._opened_s < self._spacing_s:
            if value > self.values[-1]:
                self.times_s[-1], self.values[-1] = at_s, value
            return
        self.times_s.append(at_s)
        self.values.append(value)
        self._opened_s = at_s
        if len(self.values) > self._most:
            self._halve()

    def _halve(self) -> None:
        pairs = range(0, len(self.values), 2)
        best = [max(range(first, min(first + 2, len(self.values))), key=self.values.__getitem__) for first in pairs]
        self.times_s = [self.times_s[index] for index in best]
        self.values = [self.values[index] for index in best]
        self._spacing_s = max(2 * self._spacing_s, (self.times_s[-1] - self.times_s[0]) / len(self.values))
        self._opened_s = self.times_s[-1]

    def points(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Times and values; the latest sample is the last of them."""
        times_s, values = list(self.times_s), list(self.values)
        if self._latest is not None and self._latest[0] > times_s[-1]:
            times_s.append(self._latest[0])
            values.append(self._latest[1])
        return tuple(times_s), tuple(values)
