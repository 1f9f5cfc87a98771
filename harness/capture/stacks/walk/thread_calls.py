"""What one thread does at this moment by /proc, and whether its system call would come out otherwise for a stop. Linux.

signal(7), "Interruption of system calls and library functions by stop signals": a tracer's stop counts as one. Measured
on Linux 6.18 with 19 calls: epoll_wait, sigtimedwait, semtimedop, io_getevents and a recv with a timeout fail with
EINTR, recv with MSG_WAITALL and large writes come back short, select lasts longer. Stops nothing itself.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from harness.capture.machine.syscalls import CALLS, LINE
from harness.capture.proc import FIELD_UTIME, read_fields, read_switches

RUNS = "running"
_PROC = Path("/proc")
# The kernel does these again by itself, with the time that was left. restart_syscall is one of the first four:
# nothing else in Linux sets a restart block (futex, fs/select.c, kernel/time).
_DONE_AGAIN = {"poll", "nanosleep", "clock_nanosleep", "restart_syscall", "wait4", "waitid", "pause"}
_FUTEX_WAITS = {0, 6, 9, 13}  # FUTEX_WAIT, LOCK_PI, WAIT_BITSET, LOCK_PI2; WAIT_REQUEUE_PI may come back without
_FUTEX_FLAGS = 128 | 256
_GLANCE_S, _WATCHED_S = 0.004, 0.2


class Doing(NamedTuple):
    """`call`: the line of /proc/PID/task/TID/syscall; `switches`: how often it has left a CPU, and how often forced."""

    call: str
    state: str
    switches: tuple[int, int]

    @property
    def runs(self) -> bool:
        return self.state == "R" and self.call == RUNS

    @property
    def place(self) -> tuple[int, int] | None:
        """Stack pointer and program counter of a thread that does not run."""
        words = self.call.split()
        return (int(words[-2], 16), int(words[-1], 16)) if len(words) > 2 else None


def read_doing(pid: int, tid: int, proc: Path = _PROC) -> Doing | None:
    """Null: it has ended, or may not be looked at."""
    task = proc / str(pid) / "task" / str(tid)
    try:
        call = (task / "syscall").read_text().strip()
        state, (voluntary, involuntary) = read_switches(pid, tid, proc)
        switches = int(voluntary), int(involuntary)
    except (OSError, ValueError):
        return None
    return Doing(call, state, switches) if state and LINE.fullmatch(call) else None


def survives_stop(pid: int, tid: int, call: str, proc: Path = _PROC) -> bool:
    """Whether the call that it sleeps in comes out the same when a tracer stops the thread."""
    words = call.split()
    if len(words) < 7 or not words[0].isdigit():
        return False
    return is_done_again(pid, tid, int(words[0]), [int(word, 16) for word in words[1:7]], proc)


def is_done_again(pid: int, tid: int, number: int, arguments: list[int], proc: Path = _PROC) -> bool:
    name = name_call(number)
    if name == "futex":
        return arguments[1] & ~_FUTEX_FLAGS & 0xFFFFFFFF in _FUTEX_WAITS
    if name == "read":
        return _is_pipe(proc / str(pid) / "task" / str(tid) / "fd" / str(arguments[0] & 0xFFFFFFFF))
    return name in _DONE_AGAIN


def name_call(number: int) -> str:
    return CALLS.get(os.uname().machine, {}).get(number, (f"system call {number}", 0))[0]


def _is_pipe(path: Path) -> bool:
    """Its reader comes back with what there is, or has nothing yet."""
    try:
        return stat.S_ISFIFO(path.stat().st_mode)
    except OSError:
        return False


# By thread: how often it has slept, and its user time.
Running = dict[int, tuple[int, int]]


def find_steady(pid: int, tids: Iterable[int], before: Running, proc: Path = _PROC) -> dict[int, int]:
    """Those that run, and have run code of their own since they last slept, each with how often it has slept.

    "Running" alone proves nothing: whoever was woken in a recv(MSG_WAITALL) and waits for a CPU is shown like that, and
    is still inside the call. One whose user time has risen since its last sleep has come back from it. `before`: what
    was seen when this was asked last; on a loaded machine a turn on a CPU may be long in coming.
    """
    running = {tid: seen for tid in tids if (seen := _read_running(pid, tid, proc))}
    begun = {tid: before[tid] if tid in before and before[tid][0] == seen[0] else seen for tid, seen in running.items()}
    steady: dict[int, int] = {}
    until = time.monotonic() + _WATCHED_S
    while begun and time.monotonic() < until:
        time.sleep(_GLANCE_S)
        for tid, (switches, user_ticks) in list(begun.items()):
            now = _read_running(pid, tid, proc)
            if now is None or now[0] != switches:
                del begun[tid]
            elif now[1] > user_ticks:
                steady[tid] = switches
                del begun[tid]
    before.update(begun)
    return steady


def _read_running(pid: int, tid: int, proc: Path) -> tuple[int, int] | None:
    """How often it has slept, and its user time; null when it does not run."""
    doing = read_doing(pid, tid, proc)
    if doing is None or not doing.runs:
        return None
    try:
        fields = read_fields(pid, tid, proc)
    except OSError:
        return None
    return doing.switches[0], int(fields[FIELD_UTIME])
