"""The memory control groups of this process: their limits and how many OOM kills they have counted.

Reads files only; `root` is a variable so that a made-up tree can be tested.
"""

from __future__ import annotations

import contextlib
from pathlib import Path


def memory_groups(root: Path = Path("/")) -> list[Path]:
    """The memory control groups of this process, innermost first; v2 and v1, also where a container hides the path."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            base = root / "sys/fs/cgroup"
            if "memory" in controllers.split(","):
                base /= "memory"
            elif controllers:
                continue
            marker = "memory.oom_control" if base.name == "memory" else "memory.events"
            groups = [base / path.lstrip("/"), *(base / path.lstrip("/")).parents]
            chain = [group for group in groups if group.is_relative_to(base) and (group / marker).exists()]
            if chain:
                return chain
    return []


def read_oom_counts(root: Path = Path("/")) -> dict[str, int]:
    counts = {}
    for group in memory_groups(root):
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                for line in (group / name).read_text().splitlines():
                    key, _, value = line.partition(" ")
                    if key == "oom_kill":
                        counts[str(group)] = int(value)
    return counts


def read_limits(root: Path = Path("/")) -> list[tuple[int, str]]:
    """(bytes, file) of every memory limit on the way up; a group without one is not listed."""
    limits = []
    for group in memory_groups(root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):  # "max" is no limit
                limits.append((int((group / name).read_text()), str(group / name)))
    return limits
