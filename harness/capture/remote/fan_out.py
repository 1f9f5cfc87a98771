"""The same question to many hosts at once: so many at a time, each with its own deadlines; a dead one is an answer too.

Knows nothing of the question. Threads, because each waits for a process of its own.
"""

from __future__ import annotations

import math
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from harness.capture.remote.target import Host
from harness.errors import HarnessError, Unreadable

AT_A_TIME = 32
_CLEANING_S = 5.0
_Fact = TypeVar("_Fact")


class _Late(BaseException):
    """As with Ctrl-C, whoever has something open closes it, and nobody takes it for an answer."""


def ask_all(
    hosts: Sequence[Host],
    ask: Callable[[Host], _Fact],
    on_answer: Callable[[Host, _Fact | HarnessError], None] = lambda host, answer: None,
    deadline_s: float = math.inf,
) -> dict[Host, _Fact | HarnessError]:
    """In the order of `hosts`, whoever answers first. Of one only, in this thread: Ctrl-C reaches no other.

    `deadline_s`: of each, from its beginning, for all that is done about it. Nobody waits for one that is late, not at
    the end of this process either.
    """
    if len(hosts) == 1:
        return {hosts[0]: _ask_in_time(hosts[0], ask, deadline_s)}
    found: dict[Host, _Fact | HarnessError] = {}
    due: dict[Host, float] = {}
    left, answers = deque(hosts), queue.SimpleQueue[tuple[Host, "_Fact | BaseException"]]()
    while left or due:
        while left and len(due) < AT_A_TIME:
            due[left[0]] = time.monotonic() + deadline_s
            threading.Thread(target=_put_answer, args=(left.popleft(), ask, answers), daemon=True).start()
        for host, answer in _await_some(due, answers):
            if due.pop(host, None) is not None:
                found[host] = _check(answer)
                on_answer(host, found[host])
    return {host: found[host] for host in hosts}


def _put_answer(
    host: Host, ask: Callable[[Host], _Fact], answers: queue.SimpleQueue[tuple[Host, _Fact | BaseException]]
) -> None:
    try:
        answers.put((host, _ask_one(host, ask)))
    except BaseException as error:  # noqa: BLE001 (a bug of ours, which is raised where it is seen)
        answers.put((host, error))


def _await_some(
    due: dict[Host, float], answers: queue.SimpleQueue[tuple[Host, _Fact | BaseException]]
) -> Iterator[tuple[Host, _Fact | BaseException]]:
    """The next answer, or those that are late by now."""
    patience_s = min(due.values()) - time.monotonic()
    try:
        yield answers.get(timeout=None if math.isinf(patience_s) else max(0.0, patience_s))
    except queue.Empty:
        now = time.monotonic()
        yield from [(host, _tell_late(host)) for host, until in due.items() if until <= now]


def _check(answer: _Fact | BaseException) -> _Fact | HarnessError:
    if isinstance(answer, BaseException) and not isinstance(answer, HarnessError):
        raise answer
    return answer


def _ask_in_time(host: Host, ask: Callable[[Host], _Fact], deadline_s: float) -> _Fact | HarnessError:
    """By the alarm clock, which is rung once more for whoever does not come to an end with cleaning up."""
    if math.isinf(deadline_s) or threading.current_thread() is not threading.main_thread():
        return _ask_one(host, ask)
    before = signal.signal(signal.SIGALRM, _ring)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, deadline_s, _CLEANING_S)
            return _ask_one(host, ask)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _Late:
        return _tell_late(host)
    finally:
        signal.signal(signal.SIGALRM, before)


def _ring(signo: int, frame: object) -> None:
    raise _Late


def _ask_one(host: Host, ask: Callable[[Host], _Fact]) -> _Fact | HarnessError:
    try:
        return ask(host)
    except HarnessError as error:
        return error
    except TimeoutError:
        return _tell_late(host)
    except Unreadable as error:
        return HarnessError(f"{host.name} has sent what is no answer: {error}", hint=f"ssh {host.destination} true")


def _tell_late(host: Host) -> HarnessError:
    return HarnessError(f"{host.name} has not answered in time.", hint=f"ssh {host.destination} true")
