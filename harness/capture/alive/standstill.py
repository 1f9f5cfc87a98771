"""Since when nothing of a supervised command has moved: output, bytes read and written, files, ended processes, beats.

Light, for the supervisor: no msgspec. What moves in memory only is seen by a look. Decides nothing about why.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import time
from collections.abc import Iterable, Iterator

from harness.pulse import MAGIC, ROOM, list_paths

_SAMPLES = 16  # in the time asked for
_FASTEST_S = 0.1
_SLOWEST_S = 5.0
_MOST_DESCRIPTORS = 256


class Standstill:
    """`told` while the standstill has been told; movement ends it."""

    def __init__(self, after_s: float) -> None:
        self.after_s = after_s
        self.told = False
        self._every_s = min(_SLOWEST_S, max(_FASTEST_S, after_s / _SAMPLES))
        self.due = self._since = time.monotonic()
        self._marks: dict[object, int] = {}

    @property
    def quiet_s(self) -> float:
        return time.monotonic() - self._since

    def is_due(self) -> bool:
        return time.monotonic() >= self.due

    def sample(self, pids: Iterable[int], output_bytes: int, ended: int) -> bool:
        """Whether something has moved since the last sample. A process that is new has nothing to compare with."""
        marks: dict[object, int] = {"output": output_bytes, "ended": ended}
        for pid in pids:
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
                marks.update(_read_marks(pid))
        moved = any(marks[name] > before for name, before in self._marks.items() if name in marks)
        self._marks = marks
        if moved:
            self.restart()
        self.due = time.monotonic() + self._every_s
        return moved

    def restart(self) -> None:
        self._since = time.monotonic()

    def is_over(self) -> bool:
        return self.quiet_s >= self.after_s


def _read_marks(pid: int) -> Iterator[tuple[object, int]]:
    with contextlib.suppress(OSError):  # not ours to see
        with open(f"/proc/{pid}/io", "rb", buffering=0) as file:  # noqa: PTH123 (as in tree.py)
            words = file.read().split()
        yield (pid, "read"), int(words[1])
        yield (pid, "written"), int(words[3])
    step = _read_beat(pid)
    if step is not None:
        yield (pid, "beat"), step
    yield from _list_files(pid)


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
