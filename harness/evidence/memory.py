"""Memory over time, limits, and what was left of them when the command ended. Facts only.

Times ending in `_s` are seconds since the command was started (in `watch`: since watching began).
"""

from __future__ import annotations

from msgspec import Struct


class Course(Struct, frozen=True, omit_defaults=True):
    """One quantity over time: at most some hundred points, each the greatest of its stretch; `peak` is exact."""

    times_s: tuple[float, ...] = ()
    values: tuple[int, ...] = ()
    peak: int = 0
    peak_s: float = 0.0
    low: int = 0
    low_s: float = 0.0


class Limit(Struct, frozen=True):
    """A resource limit of a process (man 2 getrlimit), `name` as in RLIMIT_AS. Null: unlimited."""

    name: str
    soft: int | None
    hard: int | None


class ProcessMemory(Struct, frozen=True, omit_defaults=True):
    """One process. `peak_rss_bytes` is the kernel's own for it, when last seen or at its end; `cpu_s` at its end.

    `most_rss_bytes`: at its end the kernel had one number for it and all that it had collected: the greatest of theirs.
    """

    pid: int
    rss_bytes: Course = Course()
    swap_bytes: Course = Course()
    threads: Course = Course()
    fds: Course = Course()
    pss_bytes: Course = Course()
    peak_rss_bytes: int = 0
    most_rss_bytes: int | None = None
    peak_vsize_bytes: int = 0
    data_bytes: int = 0
    cpu_s: float | None = None
    limits: tuple[Limit, ...] = ()
    groups: tuple[str, ...] = ()


class GroupKills(Struct, frozen=True):
    """The OOM kill counter of a control group rose by `kills` between `after_s` and `at_s`."""

    after_s: float
    at_s: float
    kills: int


class GroupMemory(Struct, frozen=True):
    """A memory control group that a process of the command was in. `others`: how many others share it."""

    path: str
    used_bytes: Course
    limit_bytes: int | None = None
    limit_source: str | None = None
    oom_kills: tuple[GroupKills, ...] = ()
    others: int | None = None
    innermost: bool = True


class Timeline(Struct, frozen=True):
    """`cost`: the share of one core that sampling took."""

    samples: int
    total_rss_bytes: Course
    available_bytes: Course
    processes: tuple[ProcessMemory, ...] = ()
    groups: tuple[GroupMemory, ...] = ()
    machine_bytes: int | None = None
    swap_bytes: int | None = None
    cost: float | None = None


class FullDisk(Struct, frozen=True):
    """A file system with no room left; `is_inodes`: no room for another file."""

    path: str
    kind: str
    free_bytes: int
    total_bytes: int
    is_inodes: bool = False


class PidsGroup(Struct, frozen=True):
    """A limit on the number of processes and threads. `refused`: how often it said no during the run."""

    path: str
    limit: int
    refused: int


class Room(Struct, frozen=True):
    """What was left, read just after the end. `overcommit`: 0 heuristic, 1 always, 2 never (proc(5)).

    `oom_kills_machine`: kills for memory on the whole machine during the run, in control groups as well.
    """

    full_disks: tuple[FullDisk, ...] = ()
    shm_free_bytes: int | None = None
    shm_total_bytes: int | None = None
    overcommit: int | None = None
    commit_limit_bytes: int | None = None
    committed_bytes: int | None = None
    pids_groups: tuple[PidsGroup, ...] = ()
    oom_kills_machine: int | None = None


class Kill(Struct, frozen=True):
    """A signal that ends, as it was sent to one of the command's processes.

    `sender_pid` null: the kernel sent it. `sender` null: it was gone before its command line could be read.
    """

    signame: str
    pid: int
    at_s: float
    sender_pid: int | None
    sender_uid: int | None
    sender: str | None
    source: str
