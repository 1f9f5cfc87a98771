"""Which single change separates the arms that fail from those that do not. Pure.

Only arms that are equal in everything else are compared, and only those that proved their difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from harness.documents.repro import FAULTS, Run

_REPEATS = 2
Value = str | int
_NAMES = {
    ("faiss", "on"): "faiss in the process",
    ("faiss", "off"): "no faiss in the process",
    ("bank", "on"): "a memory bank",
    ("bank", "off"): "no memory bank",
    ("cell", "linear"): "a linear layer in place of the recurrent one",
    ("clear_cache", "on"): "clearing the device's cache",
    ("clear_cache", "off"): "not clearing the device's cache",
    ("threads", 0): "the default number of threads",
}


class Contrast(NamedTuple):
    """One factor of one reproducer: the values that fail and those that do not, with how often each was tried."""

    place: tuple[str, str, str]
    factor: str
    failing: dict[Value, tuple[int, int]]
    clean: dict[Value, tuple[int, int]]

    @property
    def repeated(self) -> bool:
        """Both sides were tried more than once, and never mixed."""
        pure = all(failed == tried for failed, tried in self.failing.values())
        return pure and all(tried >= _REPEATS for _, tried in (*self.failing.values(), *self.clean.values()))

    @property
    def status(self) -> str:
        return "supported" if self.repeated else "hypothesis: one run each"

    def tell(self) -> str:
        well = self._range(self.clean, self.failing)
        return f"{self.place[0]} fails with {self.tell_failing()}, and not with {well}  [{self.status}]"

    def tell_failing(self) -> str:
        return self._range(self.failing, self.clean)

    def advise(self) -> str:
        return f"Launch with {self._range(self.clean, self.failing)}."

    def because(self) -> str:
        tried = sum(count for _, count in self.clean.values())
        return f"{self.place[0]} on {self.place[1]}: {tried} of {tried} clean, {self.status}"

    def _range(self, mine: Iterable[Value], others: Iterable[Value]) -> str:
        """A bound where both sides are numbers that do not overlap, else the values."""
        here, there = ([value for value in side if isinstance(value, int)] for side in (mine, others))
        if len(here) > 1 and there and 0 not in (*here, *there):
            if max(here) < min(there):
                return f"{self.factor} ≤ {max(here)}"
            if min(here) > max(there):
                return f"{self.factor} ≥ {min(here)}"
        return " or ".join(tell_choice(self.factor, value) for value in mine)


def tell_together(contrasts: Sequence[Contrast]) -> str:
    """What fails only together: each of it alone is in an arm that is clean. An order of imports implies them."""
    orders = [str(value) for one in contrasts if one.factor == "order" for value in one.failing]
    imported = {name for order in orders for name in order.split(",")}
    return " and ".join(one.tell_failing() for one in contrasts if one.factor not in imported)


def tell_choice(factor: str, value: Value) -> str:
    if factor == "order":
        return f"{' imported before '.join(str(value).split(','))}"
    return _NAMES.get((factor, value), f"{factor} {value}")


def contrast_factors(runs: Sequence[Run]) -> Iterator[Contrast]:
    """For each factor, the arms around one that fails."""
    for place in dict.fromkeys(run.place for run in runs):
        mine = [run for run in runs if run.place == place and is_usable(run)]
        seen: set[tuple[str, frozenset[Value]]] = set()
        for failing in (run for run in mine if run.state in FAULTS):
            for factor in failing.options:
                found = _contrast(place, factor, failing, mine)
                key = (factor, frozenset(found.failing if found else ()))
                if found and key not in seen:
                    seen.add(key)
                    yield found


def is_usable(run: Run) -> bool:
    """One that died before it could show its difference was started with it all the same."""
    return run.valid is True or (run.valid is None and run.state in FAULTS)


def _contrast(place: tuple[str, str, str], factor: str, around: Run, runs: Sequence[Run]) -> Contrast | None:
    failing: dict[Value, tuple[int, int]] = {}
    clean: dict[Value, tuple[int, int]] = {}
    rest = _without(around, factor)
    values = dict.fromkeys(run.options[factor] for run in runs if _without(run, factor) == rest)
    for value in values:
        same = [run for run in runs if run.options[factor] == value and _without(run, factor) == rest]
        failed = sum(run.state in FAULTS for run in same)
        (failing if failed else clean)[value] = (failed, len(same))
    return Contrast(place, factor, failing, clean) if failing and clean else None


def _without(run: Run, factor: str) -> dict[str, Value]:
    return {name: value for name, value in run.options.items() if name != factor}
