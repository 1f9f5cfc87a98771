"""Makes evidence of what a sampler has seen. Looks at nothing itself."""

from __future__ import annotations

from harness.capture.usage.courses import GroupCourse, ProcessCourse
from harness.capture.usage.sampler import Sampler
from harness.capture.usage.series import Series
from harness.evidence.memory import Course, GroupKills, GroupMemory, Limit, ProcessMemory, Timeline

# The evidence of a run with hundreds of workers stays readable: the series of the greatest, the numbers of all.
_MOST_SERIES = 64


def make_timeline(sampler: Sampler) -> Timeline:
    seen = [course for course in sampler.processes.values() if course.samples or course.limits or course.peak_rss_bytes]
    ranked = sorted(seen, key=lambda course: course.peak_rss_bytes, reverse=True)
    innermost = {course.groups[0] for course in ranked if course.groups}
    now_s = sampler.now_s()
    return Timeline(
        samples=sampler.samples,
        total_rss_bytes=_course(sampler.total),
        available_bytes=_course(sampler.available),
        processes=tuple(_process(course, rank < _MOST_SERIES) for rank, course in enumerate(ranked)),
        groups=tuple(_group(group, path in innermost) for path, group in sampler.groups.items()),
        machine_bytes=sampler.machine_bytes,
        swap_bytes=sampler.swap_bytes,
        cost=round(sampler.spent_s / now_s, 6) if now_s else None,
    )


def _process(course: ProcessCourse, whole: bool) -> ProcessMemory:
    return ProcessMemory(
        pid=course.pid,
        rss_bytes=_course(course.rss, whole),
        swap_bytes=_course(course.swap, whole),
        threads=_course(course.threads, whole),
        fds=_course(course.fds, whole),
        pss_bytes=_course(course.pss, whole),
        peak_rss_bytes=max(course.peak_rss_bytes, course.rss.peak),
        most_rss_bytes=course.most_rss_bytes,
        peak_vsize_bytes=course.peak_vsize_bytes,
        data_bytes=course.data_bytes,
        cpu_s=course.cpu_s,
        limits=tuple(Limit(name, *pair) for name, pair in course.limits.items() if pair != (None, None)),
        groups=course.groups,
    )


def _group(group: GroupCourse, innermost: bool) -> GroupMemory:
    limit, source = group.limit or (None, None)
    kills = tuple(GroupKills(*kill) for kill in group.kills)
    return GroupMemory(str(group.path), _course(group.used), limit, source, kills, group.others, innermost)


def _course(series: Series, whole: bool = True) -> Course:
    times_s, values = series.points() if whole else ((), ())
    rounded = tuple(round(time_s, 3) for time_s in times_s)
    return Course(rounded, values, series.peak, round(series.peak_s, 3), series.low, round(series.low_s, 3))
