"""Processes of another host as `alive.watching` follows them there: the same questions, answered from what it sends.

Samples are taken over there, at its own pace; times are measured on each side by its own clock, and never compared.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import Struct

from harness.capture.machine.killers import Sent
from harness.capture.remote.session import Session
from harness.evidence.living.look import Counter
from harness.evidence.living.watching import Sight
from harness.evidence.memory import Timeline

_FIRST_S = 30.0


class _Begun(Struct, frozen=True):
    pid: int
    argv: tuple[str, ...]
    output_s: float | None


class _Seen(Struct, frozen=True):
    sight: Sight
    moving: tuple[Counter, ...]


class _Ended(Struct, frozen=True):
    pid: int
    wait_status: int | None
    how_seen: str
    kernel: tuple[str, ...]
    timeline: Timeline
    sender: Sent | None


class _Part(Struct, frozen=True):
    """One of these at a time."""

    begun: tuple[_Begun, ...] = ()
    seen: tuple[_Seen, ...] = ()
    ended: tuple[_Ended, ...] = ()
    interval_s: float | None = None
    at_s: float | None = None


class RemoteWatched:
    """One target over there. Until its first sample it has no sight."""

    def __init__(self, begun: _Begun) -> None:
        self.pid, self.argv, self._output_s = begun.pid, begun.argv, begun.output_s
        self.moving: list[Counter] = []
        self.fresh: list[Counter] = []
        self.wait_status: int | None = None
        self.how_seen = ""
        self.ended = False
        self.last_timeline: Timeline | None = None
        self.sight, self.seen_at = Sight(begun.pid, begun.argv, 1, (), 0.0, 0, begun.output_s, ()), time.monotonic()

    @property
    def is_alone(self) -> bool:
        return self.sight.processes < 2

    @property
    def rests_s(self) -> float:
        return self.sight.rests_s + time.monotonic() - self.seen_at

    def last_output_s(self) -> float | None:
        return self._output_s

    def is_gone(self) -> bool:
        return self.ended

    def timeline(self) -> Timeline | None:
        """Known when it has ended: that much is not sent with every sample."""
        return self.last_timeline

    def look_at_lines(self, at_s: float) -> None:
        """Not over there: a glance would cost a py-spy each time, and a stall gets a whole look."""

    def describe(self) -> Sight:
        return self.sight


class RemoteWatching:
    """What `Watching` is for this machine."""

    def __init__(self, session: Session, pids: Sequence[int], fastest_s: float, slowest_s: float) -> None:
        self._session = session
        self.targets: dict[int, RemoteWatched] = {}
        self.interval_s = fastest_s
        self._begun = time.monotonic()
        self._kernel: dict[int, tuple[str, ...]] = {}
        self._senders: dict[int, Sent | None] = {}
        self._news: list[RemoteWatched] = []
        question = {"pids": list(pids), "fastest_s": fastest_s, "slowest_s": slowest_s}
        session.subscribe("watch", question, _Part, self._take)
        while not self.targets:
            if not session.listen(_FIRST_S):
                raise TimeoutError

    def close(self) -> None:
        """The session ends it."""

    def now_s(self) -> float:
        return time.monotonic() - self._begun

    def living(self) -> list[RemoteWatched]:
        return [one for one in self.targets.values() if not one.ended]

    def sample(self) -> None:
        """What has moved since the last time."""
        for one in self.living():
            one.moving, one.fresh = one.fresh, []

    def wait(self, for_s: float) -> list[RemoteWatched]:
        """Those that ended, as soon as one does."""
        end_s = self.now_s() + for_s
        while not self._news and self._session.listen(end_s - self.now_s()):
            if self.now_s() >= end_s:
                break
        ended, self._news = self._news, []
        for one in ended:
            one.ended = True
        return ended

    def sender_of(self, pid: int, signo: int) -> Sent | None:
        return self._senders.get(pid)

    def kernel_lines(self, pid: int) -> list[str]:
        return list(self._kernel.get(pid, ()))

    def _take(self, part: _Part) -> None:
        if not self.targets:
            self.targets = {begun.pid: RemoteWatched(begun) for begun in part.begun}
        self.interval_s = part.interval_s or self.interval_s
        for seen in part.seen:
            if one := self.targets.get(seen.sight.pid):
                one.sight, one.seen_at = seen.sight, time.monotonic()
                one.fresh += seen.moving
        for ended in part.ended:
            if (one := self.targets.get(ended.pid)) and not one.ended:
                one.wait_status, one.how_seen = ended.wait_status, ended.how_seen
                one.last_timeline = ended.timeline
                self._kernel[ended.pid], self._senders[ended.pid] = ended.kernel, ended.sender
                self._news.append(one)
