"""What the threads that run an asyncio loop wait for: the descriptors of their epoll, and whether a timer is set.

Reads /proc; stops nothing. A loop that is not in epoll (on CPU, blocked by a task, another selector) has neither.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.capture.alive.waits import Call, list_awaited, read_call
from harness.evidence.tasks import EventLoop

_EPOLL = ("epoll_wait", "epoll_pwait")
_TIMEOUT = 3  # which argument; -1 where nothing is scheduled


def read_loops(pid: int, tids: Iterable[int], proc: Path) -> Iterator[EventLoop]:
    for tid in tids:
        found = read_call(pid, tid, proc)
        if found is None or found[0] not in _EPOLL:
            yield EventLoop(tid)
            continue
        call = Call(pid, found[0], found[1], proc)
        watched = list_awaited(call)
        yield EventLoop(tid, tuple(watched) if watched else None, call.signed(_TIMEOUT) != -1)


def read_signals(pid: int, proc: Path) -> tuple[str, ...]:
    """Those that it has handlers for; man 5 proc_pid_status, SigCgt."""
    try:
        found = re.search(r"^SigCgt:\s*([0-9a-f]+)", (proc / str(pid) / "status").read_text(errors="replace"), re.M)
    except OSError:
        return ()
    mask = int(found[1], 16) if found else 0
    return tuple(_name(number) for number in range(1, 65) if mask >> (number - 1) & 1)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
