"""Is a process kept from running all the time, or only for moments, as by cpulimit or by somebody else's look? Linux.

Two small files of /proc with each sample, and the tracer's own where there is one. Control groups are not its business.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from harness.capture.living.own_processes import names_harness
from harness.capture.proc import read_argv, read_stat, read_status

_TOOLS = ("py-spy", "pystack", "gdb")


class Moment(NamedTuple):
    """`turns`: of its main thread on CPU, as the kernel counts them; to be stopped anew takes one, too."""

    held: bool
    turns: str | None
    by_look: bool = False


class Holding:
    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._moments: list[Moment] = []

    def note(self, held: bool) -> None:
        turns = None
        with contextlib.suppress(OSError):
            turns = Path(f"/proc/{self._pid}/schedstat").read_text()
        self._moments.append(Moment(held, turns, held and is_look(self._pid)))

    @property
    def is_at_times(self) -> bool:
        return is_held_at_times(self._moments)


def is_held_at_times(moments: list[Moment]) -> bool:
    """It was held at some moment, and not without a break in the later half of them; or a look held it at last."""
    if not any(one.held for one in moments):
        return False
    later = moments[min(len(moments) // 2, len(moments) - 2) :] if len(moments) > 1 else moments
    stays = all(one.held for one in later) and len({one.turns for one in later}) == 1
    return later[-1].by_look or not stays


def is_look(pid: int) -> bool:
    """Whether its tracer is a harness, or a tool that one has started. One that is gone by now is taken for that, too:
    it was there for a moment only."""
    try:
        tracer = read_status(pid).tracer_pid
        return tracer is not None and (_is_ours(tracer) or read_status(pid).tracer_pid != tracer)
    except OSError:
        return True


def _is_ours(pid: int) -> bool:
    """OSError: it has ended."""
    argv = read_argv(pid)
    if names_harness(argv):
        return True
    is_tool = any(Path(word).name in _TOOLS for word in argv[:2])
    return is_tool and names_harness(read_argv(read_stat(pid).ppid))
