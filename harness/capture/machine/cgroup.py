"""The control groups of a process: what they use, their limits, how many OOM kills they have counted.

Reads files only; `root` is a variable so that a made-up tree can be tested. Version 1 and version 2.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

_USED = ("memory.current", "memory.usage_in_bytes")
_LIMITS = ("memory.max", "memory.limit_in_bytes")
_FILE_PAGES = ("inactive_file", "active_file")
_OOM_COUNTS = ("memory.events", "memory.oom_control")
# Version 1 says "no limit" with the greatest number of whole pages.
_NO_LIMIT_BYTES = 1 << 62


def memory_groups(root: Path = Path("/"), pid: int | str = "self") -> list[Path]:
    """The memory control groups of a process, innermost first; v2 and v1, also where a container hides the path."""
    return _find_groups(root, pid, "memory", {"": "memory.events", "memory": "memory.oom_control"})


def pids_groups(root: Path = Path("/"), pid: int | str = "self") -> list[Path]:
    """Those that limit the number of processes and threads."""
    return _find_groups(root, pid, "pids", {"": "pids.max", "pids": "pids.max"})


def list_groups(root: Path, pid: int | str) -> Iterator[tuple[str, str]]:
    """(controllers, path) of each hierarchy; man 7 cgroups. A path may be any bytes. OSError."""
    text = (root / f"proc/{pid}/cgroup").read_text(errors="surrogateescape")
    for line in text.split("\n"):
        _, controllers, path = (*line.split(":", 2), "", "", "")[:3]
        if path:
            yield controllers, path


def _find_groups(root: Path, pid: int | str, controller: str, markers: dict[str, str]) -> list[Path]:
    with contextlib.suppress(OSError):
        for controllers, path in list_groups(root, pid):
            base = root / "sys/fs/cgroup"
            if controller in controllers.split(","):
                base /= controller
            elif controllers:
                continue
            marker = markers[controller if base.name == controller else ""]
            groups = [base / path.lstrip("/"), *(base / path.lstrip("/")).parents]
            chain = [group for group in groups if group.is_relative_to(base) and (group / marker).exists()]
            if chain:
                return chain
    return []


def read_oom_count(group: Path) -> int | None:
    return _read_key(group, _OOM_COUNTS, "oom_kill")


def used_file(group: Path) -> str:
    """Its name depends on the version."""
    return _existing(group, _USED)


def count_file(group: Path) -> str:
    return _existing(group, _OOM_COUNTS)


def _existing(group: Path, names: tuple[str, ...]) -> str:
    return next((str(group / name) for name in names if (group / name).exists()), str(group / names[0]))


def read_limit(group: Path) -> tuple[int, str] | None:
    """(bytes, file), or null where there is none."""
    limits = ((value, str(file)) for file, value in _read_numbers(group, _LIMITS) if value < _NO_LIMIT_BYTES)
    return next(limits, None)


def read_bound(group: Path) -> int | None:
    """What it uses without the pages of files, which the kernel drops before it kills anybody; with all below it."""
    used = next((value for _, value in _read_numbers(group, _USED)), None)
    if used is None:
        return None
    total = [_read_key(group, ("memory.stat",), f"total_{name}") for name in _FILE_PAGES]  # version 1
    own = [_read_key(group, ("memory.stat",), name) for name in _FILE_PAGES]
    return used - sum(count or 0 for count in (own if None in total else total))


def read_members(group: Path) -> set[int] | None:
    try:
        return set(map(int, (group / "cgroup.procs").read_text().split()))
    except (OSError, ValueError):
        return None


def read_pids_limit(group: Path) -> int | None:
    return next((value for _, value in _read_numbers(group, ("pids.max",))), None)


def read_pids_refused(group: Path) -> int:
    return _read_key(group, ("pids.events",), "max") or 0


def read_oom_counts(root: Path = Path("/")) -> dict[str, int]:
    counts = {str(group): read_oom_count(group) for group in memory_groups(root)}
    return {group: count for group, count in counts.items() if count is not None}


def read_limits(root: Path = Path("/")) -> list[tuple[int, str]]:
    """(bytes, file) of every memory limit on the way up; a group without one is not listed."""
    limits = [read_limit(group) for group in memory_groups(root)]
    return [limit for limit in limits if limit is not None]


def _read_key(group: Path, names: tuple[str, ...], wanted: str) -> int | None:
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            for line in (group / name).read_text().split("\n"):
                key, _, value = line.partition(" ")
                if key == wanted:
                    return int(value)
    return None


def _read_numbers(group: Path, names: tuple[str, ...]) -> list[tuple[Path, int]]:
    """Of the files that are there and hold a number; "max" is none."""
    found = []
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            found.append((group / name, int((group / name).read_text())))
    return found
