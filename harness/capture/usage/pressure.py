"""When the memory of a command comes near a limit, and which of its processes are worth a look then.

From what the sampler has seen already; reads a control group's own account only where that is nearly full. File pages
that the kernel would drop are not pressure. Looks at no process itself. Imports little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from harness.capture.machine import cgroup
from harness.capture.usage.courses import GroupCourse, ProcessCourse
from harness.capture.usage.sampler import Sampler
from harness.capture.usage.series import Series

LEVELS = (0.9, 0.97)
# Fast growth: half of a limit, and at this pace the rest would be gone within this time.
_HALF, _SOON_S = 0.5, 0.5
_MOST_LOOKED_AT = 2
_OWN_PART = 0.25
# One that stays near its limit is looked at again, each time after twice as long.
_AGAIN_S = 30.0


class Near(NamedTuple):
    """`pids`: largest first. `why` is a clause."""

    pids: tuple[int, ...]
    why: str


class _Use(NamedTuple):
    """`key` names the limit; `share` of it is in use."""

    key: str
    share: float
    pids: tuple[int, ...]
    why: str


class Pressure:
    """Tells each limit once at each level, and again while it stays near."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[float, float]] = {}  # the level, and when

    def check(self, sampler: Sampler, living: Iterable[int]) -> list[Near]:
        courses = [sampler.processes[pid] for pid in living if pid in sampler.processes]
        now_s = sampler.now_s()
        uses = (*_list_groups(sampler, courses), *_list_user_limits(courses), *_list_machine(sampler, courses))
        return [Near(use.pids, use.why) for use in uses if use.pids and self._is_news(use, now_s)]

    def _is_news(self, use: _Use, now_s: float) -> bool:
        level = max((level for level in LEVELS if use.share >= level), default=0.0)
        known = self._told.get(use.key)
        is_news = level > 0 and (known is None or level > known[0] or now_s >= 2 * known[1] + _AGAIN_S)
        if is_news:
            self._told[use.key] = level, now_s
        return is_news


def _list_groups(sampler: Sampler, courses: list[ProcessCourse]) -> Iterator[_Use]:
    rate = _rate(sampler.total)
    for path, group in sampler.groups.items():
        limit = group.limit[0] if group.limit else None
        used = group.used.last
        if not limit or not used or used < _HALF * limit:
            continue
        if used < LEVELS[0] * limit and rate * _SOON_S < limit - used:
            continue
        bound = _read_bound(group, used)
        soon = LEVELS[0] if bound >= _HALF * limit and rate * _SOON_S >= limit - bound else 0.0
        members = [course for course in courses if path in course.groups]
        why = f"{bound >> 20} of the {limit >> 20} MiB of control group {path} were in use"
        yield _Use(path, max(bound / limit, soon), _largest(members), why)


def _read_bound(group: GroupCourse, used: int) -> int:
    bound = cgroup.read_bound(group.path)
    return used if bound is None else bound


def _list_user_limits(courses: list[ProcessCourse]) -> Iterator[_Use]:
    for course in courses:
        for name, option, used in (
            ("RLIMIT_AS", "-v", course.vsize_bytes),
            ("RLIMIT_DATA", "-d", course.data_bytes),
        ):
            limit = course.limits.get(name, (None, None))[0]
            if limit and used:
                why = f"{used >> 20} of the {limit >> 20} MiB of ulimit {option} were in use"
                yield _Use(f"{name} {course.pid}", used / limit, (course.pid,), why)


def _list_machine(sampler: Sampler, courses: list[ProcessCourse]) -> Iterator[_Use]:
    """Not where most of it is somebody else's: on a machine that is always full every command would be looked at."""
    available, whole = sampler.available.last, sampler.machine_bytes
    if available is None or not whole:
        return
    used = whole - available
    if (sampler.total.last or 0) >= _OWN_PART * used:
        why = f"{used >> 20} of the {whole >> 20} MiB of this machine were in use"
        yield _Use("machine", used / whole, _largest(courses), why)


def _largest(courses: list[ProcessCourse]) -> tuple[int, ...]:
    ranked = sorted(courses, key=lambda course: course.rss.last or 0, reverse=True)
    return tuple(course.pid for course in ranked[:_MOST_LOOKED_AT])


def _rate(series: Series) -> float:
    """Bytes a second, between the last two points; 0 where it does not grow."""
    if len(series.values) < 2 or series.times_s[-1] <= series.times_s[-2]:
        return 0.0
    return max(0.0, (series.values[-1] - series.values[-2]) / (series.times_s[-1] - series.times_s[-2]))
