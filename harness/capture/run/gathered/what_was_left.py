"""What was left when the command ended: full file systems, shared memory, memory that may be promised, process counts.

Reads files only. Looks at local file systems: a network one that does not answer would hold us.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from harness.capture.machine import cgroup
from harness.capture.proc import read_meminfo
from harness.evidence.memory import FullDisk, PidsGroup, Room

_LOCAL = frozenset("ext2 ext3 ext4 xfs btrfs tmpfs overlay zfs f2fs vfat exfat ntfs3 ramfs bcachefs".split())  # noqa: SIM905
_FULL_BYTES = 64 * 1024
_MOST_MOUNTS = 500


def read_room(pids_refused: dict[str, int], machine_kills: int | None, root: Path = Path("/")) -> Room:
    """`pids_refused`: what each group had counted at the start."""
    shm = _read_space("/dev/shm")
    meminfo = read_meminfo(root)
    return Room(
        full_disks=_find_full_disks(root),
        shm_free_bytes=None if shm is None else shm.f_bavail * shm.f_frsize,
        shm_total_bytes=None if shm is None else shm.f_blocks * shm.f_frsize,
        overcommit=_read_mode(root / "proc/sys/vm/overcommit_memory"),
        commit_limit_bytes=meminfo.get("CommitLimit"),
        committed_bytes=meminfo.get("Committed_AS"),
        pids_groups=tuple(_read_pids_groups(pids_refused)),
        oom_kills_machine=machine_kills,
    )


def _read_pids_groups(refused: dict[str, int]) -> list[PidsGroup]:
    groups = []
    for path, before in refused.items():
        limit = cgroup.read_pids_limit(Path(path))
        if limit is not None:
            groups.append(PidsGroup(path, limit, cgroup.read_pids_refused(Path(path)) - before))
    return groups


def _find_full_disks(root: Path) -> tuple[FullDisk, ...]:
    found: dict[int, FullDisk] = {}
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/mounts").read_text(errors="replace").splitlines()[:_MOST_MOUNTS]:
            _, path, kind, options, *_ = line.split(" ")
            path = path.encode().decode("unicode_escape")
            space = _read_space(path) if kind in _LOCAL and "rw" in options.split(",") else None
            if space is None or not space.f_blocks:
                continue
            free = space.f_bavail * space.f_frsize
            no_files = bool(space.f_files) and space.f_favail == 0
            if free < _FULL_BYTES or no_files:
                with contextlib.suppress(OSError):
                    device = Path(path).stat().st_dev
                    total = space.f_blocks * space.f_frsize
                    found[device] = FullDisk(path, kind, free, total, free >= _FULL_BYTES)
    return tuple(found.values())


def _read_space(path: str) -> os.statvfs_result | None:
    with contextlib.suppress(OSError):
        return os.statvfs(path)
    return None


def _read_mode(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None
