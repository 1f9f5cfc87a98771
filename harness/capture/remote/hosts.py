"""The same question to many hosts at once: so many at a time, each with its own deadlines; a dead one is an answer too.

Knows nothing of the question. Threads, because each waits for a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from harness.capture.remote.place import Host
from harness.errors import HarnessError

AT_A_TIME = 32
_Fact = TypeVar("_Fact")


def ask_all(
    hosts: Sequence[Host],
    ask: Callable[[Host], _Fact],
    on_answer: Callable[[Host, _Fact | HarnessError], None] = lambda host, answer: None,
) -> dict[Host, _Fact | HarnessError]:
    """In the order of `hosts`, whoever answers first. Of one only, in this thread: Ctrl-C reaches no other."""
    found: dict[Host, _Fact | HarnessError] = {}
    if len(hosts) == 1:
        return {hosts[0]: _ask_one(hosts[0], ask)}
    pool = ThreadPoolExecutor(max(1, min(AT_A_TIME, len(hosts))))
    try:
        waiting = {pool.submit(_ask_one, host, ask): host for host in hosts}
        for done in as_completed(waiting):
            found[waiting[done]] = done.result()
            on_answer(waiting[done], done.result())
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return {host: found[host] for host in hosts}


def _ask_one(host: Host, ask: Callable[[Host], _Fact]) -> _Fact | HarnessError:
    try:
        return ask(host)
    except HarnessError as error:
        return error
    except TimeoutError:
        return HarnessError(f"{host.name} has not answered in time.", hint=f"ssh {host.destination} true")
