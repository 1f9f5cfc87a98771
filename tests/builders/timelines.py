"""Builders of memory evidence for the unit tests."""

from __future__ import annotations

from harness.evidence.memory import Course, GroupKills, GroupMemory, Kill, Limit, ProcessMemory, Timeline

GIB = 1 << 30
GROUP = "/sys/fs/cgroup/job"


def course(*values: int, step_s: float = 1.0) -> Course:
    times_s = tuple(index * step_s for index in range(len(values)))
    peak = max(values, default=0)
    return Course(times_s, values, peak, times_s[values.index(peak)] if values else 0.0, min(values, default=0))


def timeline(
    *values: int,
    pid: int = 100,
    kills: tuple[GroupKills, ...] = (),
    others: int | None = 0,
    limit_bytes: int | None = None,
    limits: tuple[Limit, ...] = (),
    **facts: object,
) -> Timeline:
    """Of one process in one control group."""
    process = ProcessMemory(
        pid, rss_bytes=course(*values), peak_rss_bytes=max(values, default=0), limits=limits, groups=(GROUP,), **facts
    )  # type: ignore[arg-type]
    source = None if limit_bytes is None else f"{GROUP}/memory.max"
    group = GroupMemory(GROUP, course(*values), limit_bytes, source, kills, others)
    available = course(*(24 * GIB - value for value in values))
    return Timeline(len(values), course(*values), available, (process,), (group,), 24 * GIB, 0)


def sent(signame: str, sender_pid: int | None, sender: str | None = None, source: str = "crash link") -> Kill:
    return Kill(signame, 100, 9.99, sender_pid, 0 if sender_pid else None, sender, source)
