"""The same question to many hosts at once: so many at a time, each with its own deadlines; a dead one is an answer too.

Knows nothing of the question. Threads, because each waits for a process of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import TypeVar

from harness.capture.remote.place import Host
from harness.errors import HarnessError, Unreadable

AT_A_TIME = 32
_TICK_S = 0.2
_Fact = TypeVar("_Fact")


def ask_all(
    hosts: Sequence[Host],
    ask: Callable[[Host], _Fact],
    on_answer: Callable[[Host, _Fact | HarnessError], None] = lambda host, answer: None,
    deadline_s: float = math.inf,
) -> dict[Host, _Fact | HarnessError]:
    """In the order of `hosts`, whoever answers first. Of one only, in this thread: Ctrl-C reaches no other.

    `deadline_s`: of each, from its beginning, for all that is done about it; nobody waits for one that is late.
    """
    if len(hosts) == 1:
        return {hosts[0]: _ask_one(hosts[0], ask)}
    found: dict[Host, _Fact | HarnessError] = {}
    begun: dict[Host, float] = {}

    def work(host: Host) -> _Fact | HarnessError:
        begun[host] = time.monotonic()
        return _ask_one(host, ask)

    pool = ThreadPoolExecutor(max(1, min(AT_A_TIME, len(hosts))))
    try:
        waiting = {pool.submit(work, host): host for host in hosts}
        while waiting:
            done, _ = wait(waiting, _TICK_S, FIRST_COMPLETED)
            now = time.monotonic()
            late = {one for one, host in waiting.items() if now - begun.get(host, now) > deadline_s} - done
            for one in (*done, *late):
                host = waiting.pop(one)
                found[host] = one.result() if one in done else _tell_late(host)
                on_answer(host, found[host])
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return {host: found[host] for host in hosts}


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
