"""A bounded series: what it may lose and what it must keep; and the sampler's reading of a made-up /proc."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.capture.usage.sampler import Sampler
from harness.capture.usage.series import Series
from harness.capture.usage.timeline import make_timeline
from harness.evidence.memory import ProcessMemory

STEPS = st.lists(st.tuples(st.floats(0.001, 1000.0), st.integers(0, 1 << 45)), min_size=1, max_size=150)


@settings(deadline=None)
@given(STEPS, st.integers(4, 32))
def test_it_stays_small_and_keeps_peak_low_first_to_last(steps: list[tuple[float, int]], most: int) -> None:
    series, now_s, values = Series(most), 0.0, []
    for step_s, value in steps:
        now_s += step_s
        series.add(now_s, value)
        values.append(value)
        assert len(series) <= most
    times_s, kept = series.points()
    assert len(kept) <= most + 1
    assert list(times_s) == sorted(times_s)
    assert (times_s[-1], kept[-1]) == (now_s, values[-1])
    assert (series.peak, series.low) == (max(values), min(values))
    assert max(kept) == max(values)


def test_a_week_of_seconds_takes_the_room_of_an_hour_and_still_covers_the_week() -> None:
    series = Series()
    for second in range(7 * 86400):
        series.add(float(second), second)
    times_s, _ = series.points()
    assert len(times_s) <= 513
    assert times_s[0] < 7200 and times_s[-1] == 7 * 86400 - 1
    assert max(later - earlier for earlier, later in pairwise(times_s)) < 7 * 86400 / 100


STATUS = """Name:\tpython
VmPeak:\t  300000 kB
VmHWM:\t  {hwm} kB
VmRSS:\t  {rss} kB
VmData:\t  80000 kB
VmSwap:\t  12 kB
Threads:\t7
"""
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max cpu time              1                    2                    seconds
Max address space         2147483648           unlimited            bytes
Max open files            64                   64                   files
Max processes             unlimited            unlimited            processes
"""


@pytest.fixture(params=["v1", "v2"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    base = "sys/fs/cgroup/memory/job" if request.param == "v1" else "sys/fs/cgroup/job"
    line = "4:memory:/job\n" if request.param == "v1" else "0::/job\n"
    names = {
        "v1": ("memory.usage_in_bytes", "memory.limit_in_bytes", "memory.oom_control"),
        "v2": ("memory.current", "memory.max", "memory.events"),
    }[request.param]
    for pid in ("self", "41"):
        write(tmp_path, f"proc/{pid}/cgroup", line)
    write(tmp_path, "proc/41/status", STATUS.format(hwm=200000, rss=100000))
    write(tmp_path, "proc/41/limits", LIMITS)
    write(tmp_path, "proc/41/stat", "41 (py) x) Z 1 41 41 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 0")
    write(tmp_path, "proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 600 kB\nSwapTotal: 10 kB\n")
    write(tmp_path, "proc/vmstat", "nr_free 1\noom_kill 4\nswap_ra 0\n")
    for name, text in zip(names, ("5000", "9000", "oom 0\noom_kill 3\n"), strict=True):
        write(tmp_path, f"{base}/{name}", text)
    write(tmp_path, f"{base}/cgroup.procs", "41\n77\n")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def group_file(root: Path) -> Path:
    (found,) = [path for path in root.rglob("*") if path.name in ("memory.events", "memory.oom_control")]
    return found


def test_the_sampler_reads_what_the_kernel_says(root: Path) -> None:
    sampler = Sampler(0, root=root)
    sampler.sample([41])
    write(root, "proc/41/status", STATUS.format(hwm=500000, rss=90000))
    sampler.sample([41])
    sampler.note_end(41)
    seen = make_timeline(sampler)
    (process,), (group,) = seen.processes, seen.groups
    assert [value >> 10 for value in process.rss_bytes.values] == [100000, 90000]
    assert process.peak_rss_bytes >> 10 == 500000  # the kernel's own peak, between two samples
    assert (process.peak_vsize_bytes >> 10, process.threads.peak, process.swap_bytes.peak >> 10) == (300000, 7, 12)
    limits = {limit.name: (limit.soft, limit.hard) for limit in process.limits}
    assert limits == {"RLIMIT_CPU": (1, 2), "RLIMIT_AS": (1 << 31, None), "RLIMIT_NOFILE": (64, 64)}
    assert process.cpu_s == 2.0  # 150 and 50 ticks
    assert (group.used_bytes.peak, group.limit_bytes, group.others) == (5000, 9000, 1)
    assert (seen.machine_bytes, seen.available_bytes.low, seen.swap_bytes) == (1000 << 10, 600 << 10, 10 << 10)


def test_kills_counted_before_are_not_ours_and_those_during_have_their_time(root: Path) -> None:
    sampler = Sampler(0, root=root)
    sampler.sample([41])
    assert make_timeline(sampler).groups[0].oom_kills == ()
    group_file(root).write_text("oom 1\noom_kill 5\n")
    write(root, "proc/vmstat", "nr_free 1\noom_kill 6\nswap_ra 0\n")
    assert sampler.count_machine_kills() == 2
    sampler.note_end(41)
    (rise,) = make_timeline(sampler).groups[0].oom_kills
    assert rise.kills == 2 and rise.after_s < rise.at_s <= sampler.now_s()


def test_a_process_that_is_gone_or_a_zombie_has_no_memory(root: Path) -> None:
    write(root, "proc/42/status", "Name:\tpython\nState:\tZ (zombie)\nThreads:\t1\n")
    sampler = Sampler(0, root=root)
    sampler.sample([42, 43])
    assert len(sampler.total) == 0
    sampler.sample([41, 42])
    sampler.sample([42])  # the last one dies: what it had is not zero
    assert sampler.total.last == 100000 << 10


def test_the_week_of_a_script_with_many_short_processes_stays_small(root: Path) -> None:
    sampler = Sampler(0, root=root)
    for pid in range(100, 1500):
        write(root, f"proc/{pid}/status", STATUS.format(hwm=pid, rss=pid))
        sampler.sample([pid])
    assert len(sampler.processes) < 600
    assert 1499 in sampler.processes  # of those that ended, the greatest stay


def collected(root: Path, faults: int, floor_bytes: int | None, most_bytes: int) -> ProcessMemory:
    """One that was seen with 200000 KiB, had children with so many page faults, and was told with `most_bytes`."""
    write(root, "proc/41/stat", f"41 (py) x) Z 1 41 41 0 -1 0 0 {faults} 0 0 150 50 0 0 20 0 1 0 0")
    sampler = Sampler(0, root=root)
    sampler.sample([41])
    sampler.note_end(41)
    sampler.note_usage(41, 9.0, most_bytes, floor_bytes)
    return make_timeline(sampler).processes[0]


def test_the_kernels_last_number_is_its_own_only_if_it_had_collected_nobody(root: Path) -> None:
    alone = collected(root, 0, 1 << 20, 700 << 20)
    assert (alone.peak_rss_bytes, alone.most_rss_bytes) == (700 << 20, None)
    parent = collected(root, 12, 1 << 20, 700 << 20)
    assert (parent.peak_rss_bytes >> 10, parent.most_rss_bytes) == (200000, 700 << 20)
    assert parent.cpu_s == 2.0  # its own, not its children's


def test_what_it_had_before_it_started_its_program_is_not_its_own(root: Path) -> None:
    below = collected(root, 0, 800 << 20, 700 << 20)
    assert (below.peak_rss_bytes >> 10, below.most_rss_bytes) == (200000, None)
    unknown = collected(root, 0, None, 700 << 20)
    assert (unknown.peak_rss_bytes >> 10, unknown.most_rss_bytes) == (200000, 700 << 20)
