"""What the threads that run an asyncio loop wait for: the descriptors of their epoll, and whether a timer is set.

Reads /proc; stops nothing. A loop that is not in epoll (on CPU, blocked by a task, another selector) has neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.capture.living.waits.thread_wait import Call, list_awaited, read_call
from harness.evidence.living.tasks import EventLoop

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
