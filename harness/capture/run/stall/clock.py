"""Since when nothing of a supervised command has moved that can be its line of work: what main threads wrote, files
that grew, beats, children that ended well.

Light, for the supervisor: no msgspec. What one of several processes writes is believed only where a look has said that
the command moves: `diagnose.line` decides there who is its line of work. Decides nothing about why.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import struct
import time
from collections.abc import Iterator, Mapping

from harness.beat import MAGIC, ROOM, list_paths

_SAMPLES = 16  # in the time asked for
_FASTEST_S = 0.1
_SLOWEST_S = 5.0
_MOST_DESCRIPTORS = 256
_Marks = dict[tuple[object, str], int]


class Standstill:
    """`told` while the standstill has been told; movement ends it."""

    def __init__(self, after_s: float) -> None:
        self.after_s = after_s
        self.told = False
        self._every_s = min(_SLOWEST_S, max(_FASTEST_S, after_s / _SAMPLES))
        self.due = self._begun = time.monotonic()
        self._rose = self._begun
        self._marks: _Marks = {}
        self._moved: dict[object, float] = {}
        self._stirred: dict[object, float] = {}
        self._trust_s, self._trusted_until = after_s, 0.0

    @property
    def quiet_s(self) -> float:
        return time.monotonic() - self._quiet_since

    @property
    def rests(self) -> bool:
        """Nothing at all has moved for as long as it has been quiet."""
        return self._rose <= self._quiet_since

    @property
    def _quiet_since(self) -> float:
        return max([self._begun, *self._moved.values()])

    @property
    def stirs(self) -> bool:
        """Somebody has moved of late whom only a look could believe."""
        return time.monotonic() - max(self._stirred.values(), default=-math.inf) < self.after_s

    def is_due(self) -> bool:
        return time.monotonic() >= self.due

    def sample(self, parents: Mapping[int, int], output_bytes: int, ended: Mapping[int, int | None]) -> bool:
        """Whether something has moved since the last sample. A process that is new has nothing to compare with.

        `parents`: of each living process, whose child it is. `output_bytes`: counts where nobody's bytes can be seen.
        `ended`: wait status of those that have, null where it is not known: what failed has never moved.
        """
        now = time.monotonic()
        marks = {mark: value for pid in parents for mark, value in _read_marks(pid)}
        if not any(what == "written" for _, what in marks):
            marks["output", "written"] = output_bytes
        marks["children", "ended"] = sum(status == 0 for status in ended.values())
        risen = {mark for mark, value in marks.items() if mark in self._marks and value > self._marks[mark]}
        self._rose = now if risen else self._rose
        sources = _find_sources(risen)
        believed = {one for one in sources if self._is_believed(one, parents, now)}
        self._moved.update(dict.fromkeys(believed, now))
        leaves = sources - believed - {*parents.values(), "children"}
        self._stirred.update(dict.fromkeys(leaves, now))
        for pid in [pid for pid, status in ended.items() if status != 0]:
            self._moved.pop(pid, None)
        self._marks = marks
        self.due = now + self._every_s
        return bool(believed)

    def _is_believed(self, one: object, parents: Mapping[int, int], now: float) -> bool:
        """The only process; any for as long as the last look is trusted; and who stood still with the command."""
        if now < self._trusted_until or (len(parents) < 2 and one != "children"):
            return True
        stood = now - self._stirred.get(one, -math.inf) > self.after_s
        return self.told and stood and one not in {*parents.values(), "children"}

    def restart(self) -> None:
        """A look has not shown that it stands: for a while, and for longer each time, what is not sure is believed."""
        self._begun = time.monotonic()
        self._trusted_until = self._begun + self._trust_s
        self._trust_s *= 2

    def is_over(self) -> bool:
        return self.quiet_s >= self.after_s


def _find_sources(risen: set[tuple[object, str]]) -> set[object]:
    """Who moved. A file that grew says so only where nobody of the process wrote: else it may be another thread's."""
    wrote = {source for source, what in risen if what == "total"}
    return {
        source
        for source, what in risen
        if what in ("written", "beat", "ended") or (what.startswith("file") and source not in wrote)
    }


def _read_marks(pid: int) -> Iterator[tuple[tuple[object, str], int]]:
    """OSError-free: what cannot be seen is left out."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        yield (pid, "total"), _read_written(f"/proc/{pid}/io")
        yield (pid, "written"), _read_written(f"/proc/{pid}/task/{pid}/io")
    step = _read_beat(pid)
    if step is not None:
        yield (pid, "beat"), step
    with contextlib.suppress(OSError, ValueError):  # it has ended
        for file, size in _list_files(pid):
            yield (pid, f"file {file}"), size


def _read_written(path: str) -> int:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 (as in proc.py)
        return int(file.read().split()[3])


def _list_files(pid: int) -> Iterator[tuple[object, int]]:
    """Size of each regular file open for writing: the link's own mode says for what it is open (man 5 proc_pid_fd)."""
    folder = f"/proc/{pid}/fd"
    for number in os.listdir(folder)[:_MOST_DESCRIPTORS]:  # noqa: PTH208 (only names are wanted)
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.lstat(f"{folder}/{number}").st_mode & stat.S_IWUSR:
                about = os.stat(f"{folder}/{number}")  # noqa: PTH116 (as above)
                if stat.S_ISREG(about.st_mode):
                    yield (about.st_dev, about.st_ino), about.st_size


def _read_beat(pid: int) -> int | None:
    """The command's processes have our environment, so its file is where ours would be."""
    for path in list_paths(pid, os.environ.get):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                data = os.read(fd, ROOM)
            finally:
                os.close(fd)
            if len(data) == ROOM and (words := struct.unpack("=3q", data))[0] == MAGIC:
                return int(words[1])
    return None
