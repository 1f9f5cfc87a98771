"""How much memory the command had, of which limit, and whether it grew. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from harness.diagnose.growth import find_growth
from harness.documents.verdict import MemoryUse
from harness.evidence.memory import Course, GroupMemory, ProcessMemory, Timeline

_COURSE_POINTS = 40
_SLACK = 0.05  # what a process may have grown after it was last seen
_USER_LIMITS = {"RLIMIT_AS": "ulimit -v, of the address space", "RLIMIT_DATA": "ulimit -d, of private memory"}


class _Bound(NamedTuple):
    """`used_bytes`: at most, where it is told; `last_bytes`: in the end, for what grows towards it."""

    bytes: int
    name: str
    used_bytes: int | None
    last_bytes: int | None

    @property
    def room_bytes(self) -> int:
        return self.bytes - (self.last_bytes or 0 if self.used_bytes is None else self.used_bytes)


def judge_memory(timeline: Timeline | None, *, alive: bool) -> MemoryUse | None:
    """Of one that has ended nothing is foretold."""
    if timeline is None or not timeline.samples:
        return None
    total, bound = timeline.total_rss_bytes, _find_bound(timeline)
    largest = _find_largest(timeline)
    last = _last(total) or 0
    room = None if bound is None or not alive else max(0, bound.bytes - (bound.last_bytes or last))
    peak = max(total.peak, largest.peak_rss_bytes if largest else 0, _most(timeline))
    return MemoryUse(
        peak_bytes=peak,
        peak_s=total.peak_s if peak == total.peak else None,
        last_bytes=last,
        processes=sum(1 for process in timeline.processes if process.rss_bytes.peak),
        largest_pid=largest.pid if largest else None,
        largest_bytes=largest.peak_rss_bytes if largest else None,
        limit_bytes=bound.bytes if bound else None,
        limit=bound.name if bound else None,
        limit_used_bytes=bound.used_bytes if bound else None,
        swap_bytes=sum(process.swap_bytes.peak for process in timeline.processes),
        available_low_bytes=timeline.available_bytes.low if timeline.available_bytes.values else None,
        growth=find_growth(total.times_s, total.values, room),
        samples=timeline.samples,
        course=thin_out(total),
    )


def _find_largest(timeline: Timeline) -> ProcessMemory | None:
    """Null: some process had more than any was seen with, and which one is not known."""
    largest = max(timeline.processes, key=lambda process: process.peak_rss_bytes, default=None)
    is_known = largest is not None and _most(timeline) <= (1 + _SLACK) * largest.peak_rss_bytes
    return largest if is_known else None


def _most(timeline: Timeline) -> int:
    """What the kernel counted for a process together with those that it had collected: one of them had it."""
    return max((process.most_rss_bytes or 0 for process in timeline.processes), default=0)


def _find_bound(timeline: Timeline) -> _Bound | None:
    """The limit that would be met first."""
    bounds = [*_list_user_limits(timeline), _find_shared_bound(timeline)]
    return min((bound for bound in bounds if bound), key=lambda bound: bound.room_bytes, default=None)


def _list_user_limits(timeline: Timeline) -> Iterator[_Bound]:
    for process in timeline.processes:
        used = {"RLIMIT_AS": process.peak_vsize_bytes, "RLIMIT_DATA": process.data_bytes}
        for limit in process.limits:
            if limit.name in used and limit.soft is not None:
                yield _Bound(limit.soft, _USER_LIMITS[limit.name], used[limit.name], used[limit.name])


def _find_shared_bound(timeline: Timeline) -> _Bound | None:
    """The tightest control group, else the machine."""
    limited = [group for group in timeline.groups if group.limit_bytes is not None and _is_real(group, timeline)]
    tightest = min(limited, key=lambda group: (group.limit_bytes or 0) - group.used_bytes.peak, default=None)
    if tightest is not None and tightest.limit_bytes is not None:
        name = f"control group {tightest.path}"
        return _Bound(tightest.limit_bytes, name, tightest.used_bytes.peak, _last(tightest.used_bytes))
    if timeline.machine_bytes is None:
        return None
    available = _last(timeline.available_bytes)
    used = None if available is None else timeline.machine_bytes - available
    return _Bound(timeline.machine_bytes, "this machine's memory", None, used)


def _is_real(group: GroupMemory, timeline: Timeline) -> bool:
    """A limit above all there is limits nothing."""
    return timeline.machine_bytes is None or (group.limit_bytes or 0) < timeline.machine_bytes


def _last(course: Course) -> int | None:
    return course.values[-1] if course.values else None


def thin_out(course: Course, most: int = _COURSE_POINTS) -> tuple[int, ...]:
    """Evenly over time, the greatest of each stretch; a stretch without a sample has the value before it."""
    if len(course.values) < 2:
        return course.values
    begin_s, span_s = course.times_s[0], max(course.times_s[-1] - course.times_s[0], 1e-9)
    slots: list[int | None] = [None] * most
    for at_s, value in zip(course.times_s, course.values, strict=True):
        slot = min(most - 1, int((at_s - begin_s) / span_s * most))
        slots[slot] = max(slots[slot] or 0, value)
    filled: list[int] = []
    for value_or_none in slots:
        filled.append(value_or_none if value_or_none is not None else filled[-1])
    return tuple(filled)
