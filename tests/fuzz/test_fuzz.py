"""Each reader gets its real answers, then hostile ones, for at most two seconds; what has ever broken one stays fixed.

`make fuzz SECONDS=600` goes on for as long as asked.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests.fuzz import answers, cases, files, insides, words  # noqa: F401 (they fill the registry)
from tests.fuzz.engine import Broken, Target, change, execute
from tests.fuzz.registry import TARGETS

CHANGES = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, (1 << 24) - 1), st.integers(0, (1 << 20) - 1)), min_size=1, max_size=6
)
MOST_CPU_S = 2.0
QUIET = list(HealthCheck)


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_really_sent_is_read(name: str) -> None:
    assert TARGETS[name].seeds
    for seed in TARGETS[name].seeds:
        assert execute(TARGETS[name], seed)


@pytest.mark.parametrize("name", TARGETS)
def test_what_nobody_should_send_costs_one_kind_of_error_little_time_and_little_memory(name: str) -> None:
    """The budget ends the search, and decides nothing."""
    target, until = TARGETS[name], time.process_time() + MOST_CPU_S

    @settings(max_examples=400, suppress_health_check=QUIET, phases=[Phase.generate, Phase.shrink], database=None)
    @given(st.integers(0, len(target.seeds) - 1), CHANGES)
    def hold(seed: int, changes: list[tuple[int, int, int]]) -> None:
        if time.process_time() < until:
            execute(target, change(target.seeds[seed], changes, target.seeds, target.text))

    hold()


def test_a_reader_that_breaks_its_promise_is_seen() -> None:
    def divide(data: bytes) -> object:
        return 1 / (len(data) - 3)

    target = Target("divides", divide, (b"1234",))
    assert execute(target, b"1234")
    with pytest.raises(Broken, match="divides: ZeroDivisionError"):
        execute(target, b"123")


@given(st.binary(max_size=300), CHANGES, st.booleans())
def test_a_change_is_the_same_each_time(data: bytes, changes: list[tuple[int, int, int]], text: bool) -> None:
    assume(data)
    assert change(data, changes, (data,), text) == change(data, changes, (data,), text)
