"""How much memory this process could still get: the machine's, its control groups', its own limit; the least counts.

Linux. `root` is a variable so that a made-up tree can be tested.
"""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

from harness.capture.machine import cgroup
from harness.capture.proc import read_meminfo
from harness.evidence.arrays import Room
from harness.evidence.gap import Gap

_USAGE = {"memory.max": "memory.current", "memory.limit_in_bytes": "memory.usage_in_bytes"}


def read_room(root: Path = Path("/")) -> Room:
    rooms = [*_machine_room(root), *_group_rooms(root), *_address_room()]
    meminfo = read_meminfo(root)
    swap = meminfo.get("SwapFree")
    if not rooms:
        return Room(None, None, swap, Gap("available memory", f"{root / 'proc/meminfo'} does not tell", "free -h"))
    available, source = min(rooms)
    return Room(max(available, 0), source, swap)


def _machine_room(root: Path) -> list[tuple[int, str]]:
    available = read_meminfo(root).get("MemAvailable")
    return [] if available is None else [(available, "on this machine")]


def _group_rooms(root: Path) -> list[tuple[int, str]]:
    """What is cached of files counts as used there, but is given up before anything is killed."""
    rooms = []
    for limit, source in cgroup.read_limits(root):
        file = Path(source)
        with contextlib.suppress(OSError, ValueError):
            used = int((file.parent / _USAGE[file.name]).read_text()) - _read_cached(file.parent)
            rooms.append((limit - used, f"of the control group's {limit:,} bytes ({source})"))
    return rooms


def _read_cached(group: Path) -> int:
    with contextlib.suppress(OSError):
        words = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return int(words.get("total_inactive_file", words.get("inactive_file", 0)))
    return 0


def _address_room() -> list[tuple[int, str]]:
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return [] if soft == resource.RLIM_INFINITY else [(soft, "of address space (ulimit -v)")]
