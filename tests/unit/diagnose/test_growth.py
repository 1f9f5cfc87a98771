"""Growth: steady rises are named with their rate; plateaus, sawteeth, noise and short looks are not."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.diagnose.growth import find_growth
from harness.diagnose.memory import judge_memory, thin_out
from harness.documents.verdict import MemoryUse
from harness.evidence.memory import Limit, ProcessMemory, Timeline
from harness.report.memory import list_memory, tell_growth
from harness.report.terminal import sparkline, tell_items
from tests.builders.timelines import GIB, GROUP, course, timeline

MIB = 1 << 20
TIMES = [float(second) for second in range(240)]


def tell_memory(use: MemoryUse | None, *, terminal: bool) -> list[str]:
    return tell_items(list_memory(use), terminal=terminal)


@settings(deadline=None)
@given(st.floats(0.5, 500.0), st.randoms(use_true_random=True))
def test_a_steady_rise_is_found_with_its_rate_and_the_time_that_is_left(rate: float, random: Random) -> None:
    noise = [random.uniform(-1.0, 1.0) for _ in TIMES]
    values = [int((100 + rate * at_s + rate * wobble) * MIB) for at_s, wobble in zip(TIMES, noise, strict=True)]
    growth = find_growth(TIMES, values, 10 * GIB)
    assert growth is not None
    assert growth.bytes_per_s == pytest.approx(rate * MIB, rel=0.05)
    assert growth.over_s == 239.0 and growth.samples == 240
    assert growth.reaches_limit_s == pytest.approx(10 * GIB / (rate * MIB), rel=0.05)


@settings(deadline=None)
@given(st.floats(1.0, 60.0), st.integers(64, 65536), st.randoms(use_true_random=True))
def test_a_plateau_is_not_a_leak(tau_s: float, top: int, random: Random) -> None:
    """Loading and warming up end in a plateau, however steep they begin."""
    noise = [random.randint(-2, 2) for _ in TIMES]
    values = [
        int(top * MIB * (1 - math.exp(-at_s / tau_s))) + wobble for at_s, wobble in zip(TIMES, noise, strict=True)
    ]
    assert find_growth(TIMES, values, GIB) is None


SHAPES = {
    "flat": [GIB] * 240,
    "falling": [2 * GIB - second * MIB for second in range(240)],
    "sawtooth": [GIB + (second % 20) * 40 * MIB for second in range(240)],
    "one step": [GIB + (512 * MIB if second > 200 else 0) for second in range(240)],
    "tiny": [GIB + second * 4096 for second in range(240)],
    "grew and stopped": [GIB + min(second, 120) * 10 * MIB for second in range(240)],
}


@pytest.mark.parametrize("name", SHAPES)
def test_these_are_not_growth(name: str) -> None:
    assert find_growth(TIMES, SHAPES[name], GIB) is None


def test_growth_that_began_late_is_told_of_its_own_stretch() -> None:
    values = [GIB + max(0, second - 120) * 10 * MIB for second in range(240)]
    growth = find_growth(TIMES, values, GIB)
    assert growth is not None and growth.over_s <= 130
    assert growth.bytes_per_s == pytest.approx(10 * MIB, rel=0.1)


@pytest.mark.parametrize(("count", "step_s"), [(2, 60.0), (9, 10.0), (100, 0.01)])
def test_two_points_or_a_moment_prove_nothing(count: int, step_s: float) -> None:
    times_s = [index * step_s for index in range(count)]
    assert find_growth(times_s, [GIB + index * 100 * MIB for index in range(count)], GIB) is None


def test_a_long_silence_hides_what_happened_in_between() -> None:
    times_s = [*(float(second) for second in range(10)), *(float(200 + second) for second in range(10))]
    assert find_growth(times_s, [int((100 + at_s * 10) * MIB) for at_s in times_s], GIB) is None


def test_the_row_names_peak_limit_and_growth_and_draws_only_on_a_terminal() -> None:
    values = [(1000 + 12 * second) * MIB for second in range(240)]
    use = judge_memory(timeline(*values, limit_bytes=8 * GIB), alive=True)
    assert use is not None and use.growth is not None
    plain = tell_memory(use, terminal=False)
    assert plain[0] == (
        "peak 3.78 GiB at 239 s; the limit is 8.00 GiB (control group /sys/fs/cgroup/job, "
        "which had 3.78 GiB when most was seen)"
    ).replace("239 s", "4 m")
    assert plain[1].startswith(
        "grew 12 MiB/s over the last 4 m, steadily (240 samples, fit 1.00); would reach the limit in 6 m"
    )
    assert not any("█" in row for row in plain)
    assert any("█" in row for row in tell_memory(use, terminal=True))
    assert tell_growth(use.growth) in plain


def test_the_tightest_limit_counts_and_one_above_the_machine_is_none() -> None:
    for limit_bytes, expected in ((8 * GIB, "control group"), (64 * GIB, "this machine's"), (None, "this machine's")):
        use = judge_memory(timeline(GIB, 2 * GIB, limit_bytes=limit_bytes), alive=True)
        assert use is not None and use.limit is not None and use.limit.startswith(expected)


def test_a_limit_of_the_user_is_named_where_it_is_met_first() -> None:
    limits = (Limit("RLIMIT_AS", 4 * GIB, None), Limit("RLIMIT_DATA", None, None), Limit("RLIMIT_NOFILE", 9, 9))
    use = judge_memory(timeline(GIB, 2 * GIB, limits=limits, peak_vsize_bytes=3 * GIB), alive=True)
    assert use and use.limit == "ulimit -v, of the address space"
    assert (use.limit_bytes, use.limit_used_bytes) == (4 * GIB, 3 * GIB)
    tight = timeline(GIB, 2 * GIB, limits=limits, peak_vsize_bytes=3 * GIB, limit_bytes=2 * GIB + 1)
    far = judge_memory(tight, alive=True)
    assert far and far.limit == f"control group {GROUP}"  # near miss: the group is tighter
    wide = (Limit("RLIMIT_AS", 99 * GIB, None),)
    use = judge_memory(timeline(GIB, limits=wide, peak_vsize_bytes=GIB), alive=True)
    assert use and use.limit_bytes == 24 * GIB


def test_of_one_that_has_ended_nothing_is_foretold() -> None:
    values = [(1000 + 12 * second) * MIB for second in range(240)]
    use = judge_memory(timeline(*values, limit_bytes=8 * GIB), alive=False)
    assert use and use.growth and use.growth.reaches_limit_s is None
    assert not any("would reach" in row for row in tell_memory(use, terminal=False))


def of_two(**parent: object) -> Timeline:
    """A parent with 221 MiB and a worker with 744 MiB that it had collected."""
    seen = timeline(221 * MIB, **parent)
    worker = ProcessMemory(101, rss_bytes=course(744 * MIB), peak_rss_bytes=744 * MIB)
    return replace(seen, total_rss_bytes=course(965 * MIB), processes=(*seen.processes, worker))


def test_what_a_worker_had_is_not_its_parents() -> None:
    use = judge_memory(of_two(most_rss_bytes=744 * MIB), alive=False)
    assert use and (use.largest_pid, use.largest_bytes) == (101, 744 * MIB)
    assert tell_memory(use, terminal=False)[0].startswith(
        "peak 965 MiB in 2 processes at 0.0 s, the largest 744 MiB (process 101);"
    )


def test_a_number_that_may_be_anybodys_is_given_to_nobody() -> None:
    use = judge_memory(of_two(most_rss_bytes=3 * GIB), alive=False)
    assert use and use.largest_pid is None and use.peak_bytes == 3 * GIB
    assert tell_memory(use, terminal=False)[0].startswith(
        "peak 3.00 GiB in one of its processes, which one is not known;"
    )


def test_no_samples_are_no_answer() -> None:
    assert judge_memory(None, alive=True) is None
    assert judge_memory(timeline(), alive=True) is None
    assert tell_memory(None, terminal=True) == []


@settings(deadline=None)
@given(st.lists(st.integers(0, 1 << 40), min_size=2, max_size=100))
def test_the_sparkline_has_the_peak_and_begins_at_zero(values: list[int]) -> None:
    thin = thin_out(course(*values))
    assert len(thin) == 40 and max(thin) == max(values)
    line = sparkline(thin)
    assert len(line) == 40 and ("█" in line) == (max(values) > 6)
