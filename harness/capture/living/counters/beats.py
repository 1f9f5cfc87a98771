"""What a program says of its own progress: the last `harness.beat(step=…)` of another process. Reads one small file."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import time
from pathlib import Path

from harness.beat import MAGIC, ROOM, list_paths
from harness.capture.proc import age_s, read_stat, read_status


def read_pulse(pid: int) -> int | None:
    """The step; null when it never beats. OSError: there is no such process."""
    inner_pid, running_s = read_status(pid).inner_pid, age_s(read_stat(pid).started_s)
    paths = list_paths(inner_pid, _read_variables(pid).get)
    for path in (*(f"/proc/{pid}/root{path}" for path in paths), *paths):
        with contextlib.suppress(OSError):
            if (step := _read(path, running_s)) is not None:
                return step
    return None


def _read_variables(pid: int) -> dict[str, str]:
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return dict(os.environ)
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _read(path: str, running_s: float) -> int | None:
    """Null: it is of an earlier process with the same pid, or something else."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        about, data = os.fstat(fd), os.read(fd, ROOM)
    finally:
        os.close(fd)
    existed_s = time.time() - about.st_ctime
    if not stat.S_ISREG(about.st_mode) or len(data) < ROOM or existed_s > running_s + 1:
        return None
    magic, step, _ = struct.unpack("=3q", data)
    return step if magic == MAGIC else None
