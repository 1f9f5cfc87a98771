"""Who is at the other end of a wait, and what does he do: does he run, is he stopped, does he wait for somebody too?

Reads /proc only. Whoever may be woken by something that cannot be seen here (a timer, a poll, a socket of another
machine) is said to wait for nobody in particular. Whether a wait can end is decided in `diagnose`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from msgspec.structs import replace

from harness.capture.living.waits.thread_wait import read_wait
from harness.capture.proc import read_switches
from harness.evidence.living.look import Peer, ThreadState, Wait

_PROC = Path("/proc")
_MOST_PEERS = 4
_MOST_THREADS = 16
_UNTIMED = {
    "read", "readv", "recvfrom", "recvmsg", "write", "writev", "sendto", "sendmsg", "flock", "fcntl", "open", "openat",
    "wait4", "waitid",
}  # fmt: skip
# Of an answer that somebody owes: a poll or an accept is how servers rest.
_ANSWERED = _UNTIMED - {"wait4", "waitid"} | {"poll", "ppoll", "connect"}


def add_peers(wait: Wait | None, proc: Path = _PROC) -> Wait | None:
    if wait is None or wait.syscall not in _ANSWERED or len(wait.peer_pids) > _MOST_PEERS:
        return wait
    return replace(wait, peers=tuple(_look_at(pid, proc) for pid in wait.peer_pids))


def compare_peers(before: Wait, wait: Wait) -> Wait:
    """`still`: seen twice, and in between it was not scheduled once."""
    seen = {peer.pid: peer for peer in before.peers}
    peers = (
        replace(peer, still=peer.switches is not None and replace(seen[peer.pid], still=None) == peer)
        if peer.pid in seen
        else peer
        for peer in wait.peers
    )
    return replace(wait, peers=tuple(peers))


def _look_at(pid: int, proc: Path) -> Peer:
    """One that cannot be seen has no state."""
    states: dict[int, ThreadState] = {}
    switches = 0
    try:
        for task in sorted((proc / str(pid) / "task").iterdir(), key=lambda task: int(task.name))[: _MOST_THREADS + 1]:
            state, (voluntary, involuntary) = read_switches(pid, int(task.name), proc)
            if state is None:
                return Peer(pid)
            states[int(task.name)] = cast("ThreadState", state)
            switches += int(voluntary) + int(involuntary)
    except (OSError, ValueError):
        return Peer(pid)
    awaits = tuple(sorted(set(_list_awaited(pid, states, proc)))) if len(states) <= _MOST_THREADS else ()
    return Peer(pid, states.get(pid), awaits, switches)


def _list_awaited(pid: int, states: dict[int, ThreadState], proc: Path) -> Iterator[int]:
    """Whom it waits for: nothing where one of its threads runs, or may be woken by somebody unknown."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for tid in states if set(states.values()) <= {"S"} else ():
            wait = read_wait(pid, tid, proc)
            if wait is None or not (_rests(wait) or (wait.syscall in _UNTIMED and wait.peer_pids)):
                return
            found += () if _rests(wait) else wait.peer_pids
        yield from found


def _rests(wait: Wait) -> bool:
    """Another thread of its process would have to wake it."""
    told = wait.target or ""
    return wait.syscall == "futex" and "with a timeout" not in told and "shared with" not in told
