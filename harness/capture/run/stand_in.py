"""The stand-in of the command: a process that gets whatever is sent to several of us at once (native/standin.c).

Without it, where it was refused or killed, every signal of a process counts as sent to us alone.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import sys
import time
from typing import Any, NoReturn

from harness import native
from harness.capture.proc import FIELD_ARG_END, FIELD_ARG_START, read_fields

NAME = "signals-of"  # native/harness.h
_ANSWER_S = 1.0
_RECORD = struct.Struct("=iiiIQQ")
# Both got it within that time, or it is not the same: a stand-in that was signalled alone speaks for nobody.
_TOGETHER_NS = 1_000_000_000


class StandIn:
    """`pid` null: there is none."""

    def __init__(self, words: list[str]) -> None:
        """`words`: the command, which its own command line repeats, so that `pkill -f` finds both."""
        self.pid: int | None = None
        self._heard: list[tuple[Any, ...]] = []
        with contextlib.ExitStack() as theirs, contextlib.suppress(OSError):
            asked, self._asks = os.pipe()
            theirs.callback(os.close, asked)
            self._hears, tells = os.pipe()
            theirs.callback(os.close, tells)
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            theirs.callback(signal.pthread_sigmask, signal.SIG_SETMASK, mask)
            self.pid = os.fork()
            if self.pid == 0:
                os.close(self._asks)
                _stand_in(words, asked, tells)

    def ask(self, since_ns: int) -> None:
        """What it has got until now; what came long before `since_ns` is forgotten."""
        if self.pid is None:
            return
        try:
            os.write(self._asks, b"?")
            answered = self._read_answer(time.monotonic() + _ANSWER_S)
        except OSError:
            answered = False
        self._heard = [record for record in self._heard if record[-1] > since_ns - _TOGETHER_NS]
        if not answered:
            self.end()

    def _read_answer(self, until: float) -> bool:
        poll = select.poll()
        poll.register(self._hears, select.POLLIN)
        while (left_s := until - time.monotonic()) > 0:
            if poll.poll(left_s * 1000):
                data = os.read(self._hears, _RECORD.size * 64)  # each is written at once, and whole
                records = list(_RECORD.iter_unpack(data))
                self._heard += [record for record in records if record[0]]
                if not data or any(not record[0] for record in records):
                    return bool(data)
        return False

    def has_heard(self, record: tuple[int, ...]) -> bool:
        """Once for each time that it has: the same signal, sender and value, at about the same time."""
        for index, heard in enumerate(self._heard):
            if heard[:-1] == record[:-1] and abs(heard[-1] - record[-1]) < _TOGETHER_NS:
                del self._heard[index]
                return True
        return False

    def end(self) -> None:
        if self.pid is not None:
            for fd in (self._asks, self._hears):
                os.close(fd)
            with contextlib.suppress(OSError):  # it ends as well when nobody can ask it any more
                os.kill(self.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self.pid = None
            self._heard.clear()


def _stand_in(words: list[str], asked: int, tells: int) -> NoReturn:
    try:
        _, lib = native.load()
        call_yourself([NAME, *words])
        lib.harness_stand_in(asked, tells)
    finally:
        os._exit(1)


def call_yourself(words: list[str]) -> None:
    """Writes over the command line that the process was started with; the command's own is its end, so there is room.

    Must not have the word harness: who ends harness by its name does not mean the command's stand-in.
    """
    if sys.platform != "linux":
        return
    fields = read_fields("self")
    start, room = int(fields[FIELD_ARG_START]), int(fields[FIELD_ARG_END]) - int(fields[FIELD_ARG_START])
    text = b"\0".join(os.fsencode(word) for word in words)[: room - 1]
    ffi, _ = native.load()
    ffi.memmove(ffi.cast("char *", start), text.ljust(room, b"\0"), room)
