"""Quick looks at Python stacks while the command runs: py-spy reads them from outside, stops nothing, has a deadline.

`take` returns at once; the tool is a child of ours that the supervisor collects. It never runs where its own memory
could bring the command to its limit, nor where reading would fetch memory back from swap. Imports little.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from harness.capture.machine import cgroup
from harness.capture.proc import read_file, read_meminfo, read_status
from harness.capture.run.process_tree import Tree
from harness.errors import Unreadable

if TYPE_CHECKING:
    from harness.evidence.glimpse import Glimpse

_MOST = 32  # in a run
_MOST_AT_ONCE = 2
_DEADLINE_S = 2.0
# py-spy takes 14 MB beside torch.
_ROOM_BYTES = 64 << 20
_MOST_OUTPUT_BYTES = 4 << 20
_IGNORED_BY_US = (signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)
Event = Literal["memory", "failure"]


class _Wish(NamedTuple):
    pid: int
    rank: str | None
    event: Event
    why: str


class _Running(NamedTuple):
    wish: _Wish
    tool_pid: int
    at_s: float
    output_fd: int
    words_fd: int
    until: float


class Glimpses:
    """Of the processes of one tree."""

    def __init__(self, tree: Tree, root: Path = Path("/")) -> None:
        self._tree = tree
        self._root = root
        self._wishes: list[_Wish] = []
        self._running: dict[int, _Running] = {}
        self._ended: list[tuple[_Running, int]] = []
        self._gaps: dict[int, str] = {}
        self._count = 0

    @property
    def due(self) -> float:
        """When `tend` has something to do, on the monotonic clock."""
        return min((one.until for one in self._running.values()), default=float("inf"))

    def take(self, pids: Iterable[int], why: str, event: Event = "failure") -> None:
        for pid in pids:
            member = self._tree.members.get(pid)
            if member is not None and sys.platform == "linux" and self._count < _MOST and _is_python(pid):
                self._count += 1
                self._wishes.append(_Wish(pid, member.rank, event, why))
        self._start_next()

    def _start_next(self) -> None:
        while self._wishes and len(self._running) < _MOST_AT_ONCE:
            wish = self._wishes.pop(0)
            member = self._tree.members.get(wish.pid)
            if member is None or member.ended_s is not None:
                continue
            if reason := self._why_not(wish.pid):
                self._gaps[wish.pid] = reason
                continue
            self._start(wish)

    def _why_not(self, pid: int) -> str | None:
        swapped = None
        with contextlib.suppress(OSError, Unreadable):
            swapped = read_status(pid).swap_bytes
        if swapped is None or swapped > 0:
            return "part of its memory is in swap, and a look would bring it back"
        left = self._find_room()
        if left < _ROOM_BYTES:
            return f"only {max(0, left) >> 20} MiB were left where harness itself runs, too little for a safe look"
        return None

    def _find_room(self) -> int:
        """What our own control groups and the machine still have for us."""
        limits = ((group, cgroup.read_limit(group)) for group in cgroup.memory_groups(self._root))
        rooms = [limit[0] - (cgroup.read_bound(group) or 0) for group, limit in limits if limit is not None]
        return min([*rooms, read_meminfo(self._root).get("MemAvailable", 0)])

    def _start(self, wish: _Wish) -> None:
        from harness.capture.stacks.ladder import find_py_spy

        tool = find_py_spy()
        if not tool.startswith("/"):
            self._gaps[wish.pid] = tool
            return
        output, words = (os.memfd_create(name, os.MFD_CLOEXEC) for name in ("glimpse", "words"))
        actions = [(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, words, 2)]
        argv = [tool, "dump", "--json", "--nonblocking", "--pid", str(wish.pid)]
        environment = {**os.environ, "RUST_BACKTRACE": "0"}
        try:
            pid = os.posix_spawn(
                tool,
                argv,
                environment,
                file_actions=[(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0), *actions],
                setpgroup=0,
                setsigmask=(),
                setsigdef=_IGNORED_BY_US,
            )
        except OSError as error:
            self._gaps[wish.pid] = f"{tool}: {error.strerror}"
            os.close(output)
            os.close(words)
            return
        self._tree.hide(pid)
        _be_killed_first(pid)
        until = time.monotonic() + _DEADLINE_S
        self._running[pid] = _Running(wish, pid, self._tree.now_s(), output, words, until)

    def note_exit(self, pid: int, wait_status: int) -> bool:
        """Whether it was one of ours."""
        running = self._running.pop(pid, None)
        if running is None:
            return False
        self._ended.append((running, wait_status))
        self._start_next()
        return True

    def tend(self) -> None:
        """Ends those that take too long."""
        now = time.monotonic()
        for one in self._running.values():
            if now >= one.until:
                _kill(one.tool_pid)

    def end(self) -> None:
        """The command has ended, and with it what was looked at."""
        self._wishes.clear()
        for pid in list(self._running):
            _kill(pid)
            with contextlib.suppress(ChildProcessError):
                self.note_exit(pid, os.waitpid(pid, 0)[1])

    def collect(self) -> tuple[tuple[Glimpse, ...], dict[int, str]]:
        """All that was seen, in the order in which it was begun; of the pids that were never seen, why."""
        seen = []
        for running, wait_status in sorted(self._ended, key=lambda one: one[0].at_s):
            try:
                seen.append(_read(running, wait_status))
            except ValueError as error:
                self._gaps[running.wish.pid] = str(error)
        self._ended.clear()
        unseen = self._gaps.keys() - {one.pid for one in seen}
        return tuple(seen), {pid: self._gaps[pid] for pid in unseen}


def _read(running: _Running, wait_status: int) -> Glimpse:
    """ValueError: it failed, or what it printed is not readable."""
    from harness.capture.stacks.py_spy import Thread
    from harness.evidence.glimpse import Glimpse, GlimpseThread
    from harness.evidence.text.answers import decode_json

    wish, (output, words) = running.wish, (_read_back(fd) for fd in (running.output_fd, running.words_fd))
    if wait_status:
        said = words.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ValueError(f"py-spy: {said.strip() or f'ended with wait status {wait_status}'}")
    threads = tuple(
        GlimpseThread(tuple(frame.place for frame in one.frames), one.name, one.tid, one.owns_gil, one.active)
        for one in decode_json(output, tuple[Thread, ...])
    )
    return Glimpse(wish.pid, wish.rank, round(running.at_s, 3), wish.event, wish.why, threads)


def _read_back(fd: int) -> bytes:
    try:
        return os.pread(fd, _MOST_OUTPUT_BYTES, 0)
    finally:
        os.close(fd)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # ours, and not collected yet


def _be_killed_first(pid: int) -> None:
    """Should memory run out all the same: the tool goes, not the command."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w") as score:  # noqa: PTH123 (imports little)
        score.write("1000")


def _is_python(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"python" in read_file(f"/proc/{pid}/maps")
    return False
