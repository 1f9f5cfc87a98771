"""What a sampler has seen so far of one process, and of one memory control group. Decides nothing."""

from __future__ import annotations

import contextlib
from pathlib import Path

from harness.capture.machine import cgroup
from harness.capture.proc import read_file
from harness.capture.usage.series import Series

_PROCESS_POINTS = 128
PSS_EVERY_S = 60.0
_TIGHT = 0.9


class ProcessCourse:
    """What was seen of one process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.rss, self.swap, self.threads, self.fds, self.pss = (Series(_PROCESS_POINTS) for _ in range(5))
        self.peak_rss_bytes = self.peak_vsize_bytes = self.data_bytes = self.vsize_bytes = 0
        self.most_rss_bytes: int | None = None  # what the kernel counts at the end for it and those it had collected
        self.has_collected: bool | None = None
        self.cpu_s: float | None = None
        self.limits: dict[str, tuple[int | None, int | None]] = {}
        self.groups: tuple[str, ...] = ()
        self.samples = 0
        self.shared_s = -PSS_EVERY_S
        self.ended = False

    def is_tight(self) -> bool:
        """Of an address space or private memory that is limited, most is in use."""
        used = {"RLIMIT_AS": self.vsize_bytes, "RLIMIT_DATA": self.data_bytes}
        softs = ((self.limits.get(name, (None, None))[0], count) for name, count in used.items())
        return any(soft is not None and count > _TIGHT * soft for soft, count in softs)


class GroupCourse:
    """What was seen of one memory control group."""

    def __init__(self, path: Path, now_s: float) -> None:
        self.path = path
        self.used = Series()
        self.limit = cgroup.read_limit(path)
        self._used_file, self._count_file = cgroup.used_file(path), cgroup.count_file(path)
        self.count = self._read_count()
        self.seen_s = now_s
        self.kills: list[tuple[float, float, int]] = []
        self.others: int | None = None

    def sample(self, now_s: float) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.used.add(now_s, int(read_file(self._used_file)))
        self.count_kills(now_s)

    def _read_count(self) -> int | None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int((b"\n" + read_file(self._count_file)).partition(b"\noom_kill ")[2].split(None, 1)[0])
        return None

    def count_kills(self, now_s: float) -> None:
        count = self._read_count()
        if count is not None and self.count is not None and count > self.count:
            self.kills.append((self.seen_s, now_s, count - self.count))
        if count is not None:
            self.count = count
        self.seen_s = now_s

    def is_tight(self) -> bool:
        return self.limit is not None and (self.used.last or 0) > _TIGHT * self.limit[0]
