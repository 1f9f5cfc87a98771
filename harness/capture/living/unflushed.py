"""What a living process has printed but not flushed, by way of a probe that reads its memory.

Does not stop the process, and reads nothing of it here: whatever the probe meets, it meets in a child.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import IO, NamedTuple

import msgspec

from harness.capture.machine.payload import payload
from harness.errors import Unreadable
from harness.evidence.gap import Gap
from harness.evidence.living.unflushed import Unflushed
from harness.evidence.text.answers import decode_json

_DEADLINE_S = 10.0
_WHAT = "output not flushed"


class _Answer(msgspec.Struct):
    """`partly`: not all memory was searched, as `why` says. `places`: where the streams are, for the next time."""

    streams: tuple[Unflushed, ...]
    why: str | None
    partly: bool = False
    places: tuple[int, ...] = ()


class Reading(NamedTuple):
    """A gap beside streams: these are exact, but there may be others."""

    streams: tuple[Unflushed, ...]
    gap: Gap | None


class Buffers:
    """Of one process. The first search takes half a second with torch: start() it, do something else, collect().

    Later readings begin where the streams were found, and take some hundredths. What the first search could not reach
    is not reached then either.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._places: tuple[int, ...] = ()
        self._not_reached: str | None = None
        self._under_way: tuple[subprocess.Popen[bytes], IO[bytes]] | None = None

    def start(self) -> None:
        """Nothing, when one is under way. Into a file: a pipe may fill up before anybody reads it."""
        if self._under_way is None:
            words = [str(payload("probes/unflushed.py")), str(self.pid), *map(str, self._places)]
            out = os.fdopen(os.memfd_create("unflushed"), "w+b")
            command = [sys.executable, "-I", "-S", *words]
            self._under_way = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out), out

    @property
    def is_under_way(self) -> bool:
        return self._under_way is not None

    @property
    def is_ready(self) -> bool:
        return self._under_way is not None and self._under_way[0].poll() is not None

    def collect(self, deadline_s: float = _DEADLINE_S) -> Reading:
        self.start()
        assert self._under_way is not None
        child, out = self._under_way
        try:
            status = child.wait(deadline_s)
            out.seek(0)
            said = out.read()
            if status:
                return Reading((), Gap(_WHAT, f"exit status {status}: {said.decode(errors='replace').strip()}"))
            answer = decode_json(said, _Answer)
        except (subprocess.TimeoutExpired, Unreadable) as error:
            return Reading((), Gap(_WHAT, str(error)))
        finally:
            self.close()
        return self._remember(answer)

    def _remember(self, answer: _Answer) -> Reading:
        why = answer.why
        if not self._places:
            self._places, self._not_reached = answer.places, why if answer.partly else None
        elif not answer.partly and self._not_reached:
            why = self._not_reached
        return Reading(answer.streams, Gap(_WHAT, why) if why else None)

    def close(self) -> None:
        if self._under_way is not None:
            child, out = self._under_way
            if child.poll() is None:
                child.kill()
                child.wait()
            out.close()
            self._under_way = None


def read_unflushed(pid: int) -> Reading:
    return Buffers(pid).collect()
