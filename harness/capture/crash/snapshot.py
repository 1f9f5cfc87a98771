"""Everything that can be seen of a process while it stands still: stacks, images, open files, memory.

Two halves: `look_while_held` needs the living process and is short; `complete` reads files on disk, after it was let
go. What cannot be had is a gap, and the rest is still taken. Holds nothing and releases nothing itself.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from harness.capture.files.images import Row, find_python, list_images, list_mappings, read_maps
from harness.capture.files.owners import name_owners
from harness.capture.machine.refusals import REFUSED
from harness.capture.openmp.live_census import complete as complete_census
from harness.capture.openmp.live_images import NOTHING_SIGHTED, Sighting
from harness.capture.openmp.live_images import look_while_held as look_at_openmp
from harness.capture.proc import read_status
from harness.capture.stacks.callers import name_callers
from harness.capture.stacks.frames import read_memory
from harness.capture.stacks.gdb import GDB, INSTALL, lacks_gdb
from harness.capture.stacks.ladder import DEEP_LADDER, take_stacks, use_waiting_time
from harness.capture.stacks.walk.chain import OwnFrames
from harness.evidence.crash import CrashThread, Image, Mapping, Step, ToolRun
from harness.evidence.gap import Gap
from harness.evidence.openmp import Census

_MOST_FILES = 256
_PROC = Path("/proc")
_Fact = TypeVar("_Fact")


class Snapshot(NamedTuple):
    """What was seen of one process. From `look_while_held` the images may have no owners yet (`owners_sought`)."""

    pid: int
    step: Step
    threads: tuple[CrashThread, ...]
    tools: tuple[ToolRun, ...]
    images: tuple[Image, ...]
    mappings: tuple[Mapping, ...]
    open_files: tuple[str, ...]
    rss_bytes: int | None
    peak_rss_bytes: int | None
    threads_total: int | None
    shm_free_bytes: int | None
    executable: str | None
    packages: dict[str, str]
    gaps: tuple[Gap, ...]
    seconds: float
    sighting: Sighting
    owners_sought: bool
    openmp: Census | None = None


def take_snapshot(pid: int, deadline_s: float, *, tid: int | None = None) -> Snapshot:
    return complete(look_while_held(pid, deadline_s, tid=tid))


def look_while_held(
    pid: int, deadline_s: float, *, tid: int | None = None, registers: dict[str, int] | None = None
) -> Snapshot:
    """The files of /proc first, which take milliseconds, then the stacks. With no time (0) only the former.

    `tid` is the thread that crashed: a tool that does not show it is not enough. `registers`: its own, at the fault.
    """
    begun = time.monotonic()
    gaps: list[Gap] = []
    rows: list[Row] = _guard(gaps, "mappings and loaded images", lambda: read_maps(pid), [])
    open_files: tuple[str, ...] = _guard(gaps, "open files", lambda: read_open_files(pid), ())
    status = _guard(gaps, "memory and number of threads", lambda: read_status(pid), None)
    executable = _guard(gaps, "executable", lambda: str((_PROC / str(pid) / "exe").readlink()), None)
    images = list_images(rows)
    sighting = _guard(gaps, "OpenMP runtimes", lambda: look_at_openmp(pid, rows), NOTHING_SIGHTED._replace(pid=pid))
    named: list[tuple[Image, ...]] = []  # found while we wait for the first tool
    python = find_python(executable, images)
    shm_free_bytes = _guard(gaps, "room in /dev/shm", lambda: read_shm_free(pid), None)
    own = OwnFrames(tid, registers or {}, rows, images, read_memory(pid))
    ladder = DEEP_LADDER if own.deep else use_waiting_time(lambda: named.append(_seek_owners(gaps, images, executable)))
    stacks: tuple[Step, tuple[CrashThread, ...], tuple[ToolRun, ...]] = ("none", (), ())
    left_s = deadline_s - (time.monotonic() - begun)
    if left_s > 0:
        ladder = ladder if python else (*ladder, GDB)
        stacks = _guard(gaps, "stacks", lambda: take_stacks(pid, python, left_s, tid=tid, ladder=ladder), stacks)
    step, threads, tools = own.join(*stacks)
    return Snapshot(
        pid=pid,
        step=step,
        threads=threads,
        tools=tools,
        images=named[0] if named else images,
        mappings=list_mappings(rows),
        open_files=open_files,
        rss_bytes=status and status.rss_bytes,
        peak_rss_bytes=status and status.peak_rss_bytes,
        threads_total=status and status.threads_total,
        shm_free_bytes=shm_free_bytes,
        executable=executable,
        packages={},
        gaps=(*gaps, *stack_gaps(step, tools), *own.gaps(threads)),
        seconds=time.monotonic() - begun,
        sighting=sighting,
        owners_sought=bool(named),
    )


def nothing_seen(pid: int, why: str) -> Snapshot:
    """Of one that crashed and could not be looked at."""
    return Snapshot(
        pid=pid,
        step="none",
        threads=(),
        tools=(),
        images=(),
        mappings=(),
        open_files=(),
        rss_bytes=None,
        peak_rss_bytes=None,
        threads_total=None,
        shm_free_bytes=None,
        executable=None,
        packages={},
        gaps=(Gap("stacks, images, memory and open files of the crashed process", why),),
        seconds=0.0,
        sighting=NOTHING_SIGHTED._replace(pid=pid),
        owners_sought=True,
    )


def complete(seen: Snapshot) -> Snapshot:
    """With owners and packages; reads what is installed, and needs the process no more."""
    gaps = list(seen.gaps)
    images = seen.images if seen.owners_sought else _seek_owners(gaps, seen.images, seen.executable)
    packages = {
        image.distribution: image.version
        for image in images
        if image.owner in ("wheel", "conda") and image.distribution and image.version
    }
    gaps += _deleted_gaps(images)
    threads = _guard(gaps, "names of callers", lambda: name_callers(seen.threads), seen.threads)
    openmp = _guard(gaps, "OpenMP runtimes", lambda: complete_census(seen.sighting, images), None)
    return seen._replace(
        images=images, threads=threads, packages=dict(sorted(packages.items())), openmp=openmp, gaps=tuple(gaps)
    )


def _guard(gaps: list[Gap], what: str, look: Callable[[], _Fact], otherwise: _Fact) -> _Fact:
    try:
        return look()
    except (*REFUSED, ValueError, LookupError) as error:
        gaps.append(Gap(what, f"{type(error).__name__}: {error}"))
        return otherwise


def _seek_owners(gaps: list[Gap], images: tuple[Image, ...], executable: str | None) -> tuple[Image, ...]:
    return _guard(gaps, "owners of the loaded images", lambda: name_owners(images, executable), images)


def read_open_files(pid: int, proc: Path = _PROC) -> tuple[str, ...]:
    """`3 -> /path`, as ls shows it, lowest descriptors first."""
    folder = proc / str(pid) / "fd"
    files = []
    for number in sorted(map(int, os.listdir(folder)))[:_MOST_FILES]:  # noqa: PTH208 (only names are wanted)
        with contextlib.suppress(OSError):  # closed meanwhile
            target = os.fsencode((folder / str(number)).readlink()).decode("utf-8", "replace")
            files.append(f"{number} -> {target}")
    return tuple(files)


def read_shm_free(pid: int, proc: Path = _PROC) -> int | None:
    """In the target's own mount namespace; null where it has no /dev/shm."""
    try:
        room = os.statvfs(proc / str(pid) / "root/dev/shm")
    except FileNotFoundError:
        return None
    return room.f_bavail * room.f_frsize


def stack_gaps(step: Step, tools: tuple[ToolRun, ...]) -> list[Gap]:
    if step == "native-all":
        return []
    by_gdb = tuple(run for run in tools if run.tool.startswith("gdb"))
    what = {
        "native": "Python frames among the native ones" if by_gdb else "native threads that Python does not know",
        "python": "native frames",
    }.get(step, "native stacks" if by_gdb else "native and Python stacks")
    told = tools if step == "native" else by_gdb or tools  # without a Python what pystack says is no news
    words = [f"{run.tool}: {_last_line(run.error)}" for run in told if run.error]
    words += ["gdb, which read this stack, does not know them"] if step == "native" and by_gdb else []
    why = "; ".join(words) or "not looked for"
    return [Gap(what, why, INSTALL if lacks_gdb(tools) else None)]


def _last_line(words: str) -> str:
    return words.strip().rpartition("\n")[2]


def _deleted_gaps(images: tuple[Image, ...]) -> list[Gap]:
    return [
        Gap(f"version of {image.path}", "the file was replaced or removed after it was loaded")
        for image in images
        if image.deleted and image.distribution
    ]
