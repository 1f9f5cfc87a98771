"""The signals that arrive at the supervisor, in their order, and whether the command has got each by itself.

Does not pass them on: that is the supervisor's. The one clock is for senders that signal one process after the other (a
control group, `pkill`): they are given `_GRACE_S` to come to the command's stand-in. A group is told at once.
"""

from __future__ import annotations

import collections
import os
import signal
import time
from collections.abc import Iterator
from typing import NamedTuple

from harness import native
from harness.capture.proc import read_argv
from harness.capture.run.stand_in import StandIn

_GRACE_S = 0.005
_MOST_RECORDS = 256


class Record(NamedTuple):
    """One signal as siginfo tells of it. `code` above 0: the kernel sent it."""

    signo: int
    code: int
    pid: int
    uid: int
    value: int
    time_ns: int

    @property
    def sender(self) -> int:
        """0: the kernel, a timer or a message queue."""
        return self.pid if self.code in (0, _SI_QUEUE, _SI_TKILL) else 0


_SI_QUEUE, _SI_TKILL = -1, -6  # asm-generic/siginfo.h


class Arrived(NamedTuple):
    """`words`: the sender's command line. `shared`: others got it too, and so the command."""

    record: Record
    words: str
    shared: bool


class Given(NamedTuple):
    """With what harness was started, and so the command is to start: signals that are ignored, and blocked."""

    ignored: frozenset[int]
    blocked: frozenset[int]


class Arrivals:
    """From the moment it is made every signal comes here, until `close`."""

    def __init__(self, words: list[str]) -> None:
        """`words`: the command."""
        _, lib = native.load()
        ignored = frozenset(s for s in signal.valid_signals() if signal.getsignal(s) == signal.SIG_IGN)
        self.fd = int(lib.harness_signals_open())
        if self.fd < 0:
            raise OSError(-self.fd, os.strerror(-self.fd))
        self.stand_in = StandIn(words)
        blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
        self.given = Given(ignored, frozenset(blocked))
        self._waiting: collections.deque[tuple[float, Record, str]] = collections.deque()
        self._has_more = False  # what is held back for want of room makes no descriptor readable

    def read(self) -> None:
        """Takes the news; the sender's command line is read at once, because a `kill` lives for a millisecond."""
        ffi, lib = native.load()
        records = ffi.new(f"struct harness_signal[{_MOST_RECORDS}]")
        now = time.monotonic()
        count = lib.harness_signals_read(records, _MOST_RECORDS)
        self._has_more = count == _MOST_RECORDS
        for told in records[0:count]:
            record = Record(*(getattr(told, name) for name in Record._fields))
            if record.signo != signal.SIGCHLD or record.code <= 0:  # a child's news woke us, and that is all
                words = " ".join(read_argv(record.sender)) if record.sender else "the kernel"
                self._waiting.append((now + _GRACE_S if record.code <= 0 else now, record, words))

    @property
    def due(self) -> float | None:
        """When the next one is to be taken."""
        if self._has_more:
            return 0.0
        return self._waiting[0][0] if self._waiting else None

    def take(self) -> Iterator[Arrived]:
        """Each that is due."""
        if self._has_more:
            self.read()
        now = time.monotonic()
        if self._waiting and self._waiting[0][0] <= now:
            self.stand_in.ask(self._waiting[0][1].time_ns)
        while self._waiting and self._waiting[0][0] <= now:
            _, record, words = self._waiting.popleft()
            yield Arrived(record, words, self.stand_in.has_heard(record))

    def close(self) -> None:
        """From here on a signal is meant for us."""
        self.stand_in.end()
        stop_following()
        signal.pthread_sigmask(signal.SIG_SETMASK, self.given.blocked)


def stop_following() -> None:
    """In the supervisor when the command has ended, and in a copy of it that is on its own."""
    native.load()[1].harness_signals_close()
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def send(pid: int, record: Record) -> bool:
    """With its value and its sender where it was queued; whether it could be sent."""
    ffi, lib = native.load()
    return int(lib.harness_signals_send(pid, ffi.new("struct harness_signal *", tuple(record)))) == 0
