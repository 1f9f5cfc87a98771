"""Does a process sleep as a whole, and has it handlers of signals that could let one of its threads go on? Linux.

Reads /proc, and what Python does on Ctrl-C; stops nothing. Which waits could end is a judgement;
`diagnose/living/locks/abandoned.py` makes it. A timer cannot wake anybody without a handler or a thread of its own, so
that it is not looked for.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Optional

from harness.capture.living.waits.interrupts import has_usual_interrupt
from harness.capture.proc import read_status_fields, read_switches
from harness.evidence.living.look import Rest, Wait
from harness.evidence.run import name_signal

_PROC = Path("/proc")
_MOST_THREADS = 512
_ATTEMPTS, _PAUSE_S = 5, 0.03
# A handler of faulthandler's or of ours lets nobody go on; nor do the two signals of glibc's threads, and the last one,
# which our library borrows. Python's own handler of SIGINT ends what it interrupts.
_LEAVES_ALONE = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGABRT,
        signal.SIGTRAP,
        signal.SIGSYS,
        32,
        33,
        64,
    }
)

# As a type it is evaluated, on other hosts by Python 3.9 too.
Waits = dict[int, Optional[Wait]]  # noqa: UP045


def read_rest(pid: int, read_waits: Callable[[], Waits], proc: Path = _PROC) -> tuple[Waits, Rest]:
    """What `read_waits` finds, and whether nobody has run meanwhile: then all of it was true at one moment.

    Asked again where all may be in locks or an event loop, and one of our own tools or a late sleeper has come in
    between.
    """
    for _ in range(_ATTEMPTS):
        before = _count_runs(pid, proc)
        waits = read_waits()
        together = before is not None and set(before) == set(waits) and before == _count_runs(pid, proc)
        if together or not all(map(_may_be_within, waits.values())):
            break
        time.sleep(_PAUSE_S)
    return waits, Rest(together, list_handled(pid, proc))


def _may_be_within(wait: Wait | None) -> bool:
    return wait is None or wait.syscall is None or wait.syscall.startswith(("futex", "epoll"))


def _count_runs(pid: int, proc: Path) -> dict[int, list[str]] | None:
    """How often each thread left the CPU; null where one does not sleep, or there are too many."""
    counts: dict[int, list[str]] = {}
    try:
        tids = [int(task.name) for task in (proc / str(pid) / "task").iterdir()]
        for tid in tids if len(tids) <= _MOST_THREADS else ():
            state, counts[tid] = read_switches(pid, tid, proc)
            if state != "S":
                return None
    except OSError:
        return None
    return counts or None


def list_handled(pid: int, proc: Path = _PROC) -> tuple[str, ...] | None:
    """The signals whose handler could let somebody go on: an alarm, SIGTERM, SIGUSR1. Null: could not be read.

    A handler of SIGINT whose function could not be read may be of any kind.
    """
    try:
        caught = int(read_status_fields(pid, proc=proc)["SigCgt"][0], 16)
    except (OSError, ValueError, LookupError):
        return None
    handled = (n for n in range(1, 65) if caught >> (n - 1) & 1 and n not in _LEAVES_ALONE)
    return tuple(name_signal(n) for n in handled if n != signal.SIGINT or not has_usual_interrupt(pid, proc))
