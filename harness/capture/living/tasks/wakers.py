"""Which task of a process will wake which, and when a sleep ends: what their callbacks and the loop's timers refer to.

A task is woken by the task that it awaits, by one whose callbacks refer to the future it awaits (gather, wait,
wait_for, shield), or to the object in whose method it awaits (TaskGroup, as_completed). Who sets a plain future is not
known here.
"""

from __future__ import annotations

import contextlib
import re
import struct
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from harness.capture.living.tasks.coroutines import Chain, Coroutines, Torn, find_types, list_instances
from harness.evidence.living.tasks import AsyncTask, TaskState

_TIMER = b"TimerHandle"
_MAIN = "_run_until_complete_cb"  # what asyncio's loop has its main task call
_LIBRARY = re.compile(r"/asyncio/\w+\.py$")
_MOST_SHOWN = 400
_MOST_CALLBACKS, _MOST_REFERRED = 8, 64
_FUTURES = (b"_asyncio.Future", b"_GatheringFuture")
_LIMITS = (b"Timeout", b"CancelScope")
Trace = tuple[object, ...]


class Task(NamedTuple):
    """`waiter`: the future that it waits for, or 0. `callbacks`: whom it calls when it is done."""

    address: int
    name: str
    chain: Chain
    waiter: int
    callbacks: tuple[int, ...]


class Wakers(NamedTuple):
    """`tasks`: by the address of what they refer to. `kinds`: the types of futures, and of whose method is waited in.

    `timers`: when a future will be set, by the loop's clock. `main`: the tasks that a loop runs until they are done.
    `limited`: those inside an asyncio.timeout().
    """

    tasks: dict[int, list[int]]
    kinds: dict[int, str]
    timers: dict[int, float]
    main: frozenset[int]
    limited: frozenset[int]


def find_wakers(objects: Coroutines, tasks: dict[int, Task]) -> Wakers:
    wakes: dict[int, list[int]] = {}
    known: dict[int, set[int]] = {}
    for task in tasks.values():
        for callback in task.callbacks:
            if callback not in known:
                known[callback] = _find_referred(objects, callback)
            for referred in known[callback]:
                wakes.setdefault(referred, []).append(task.address)
    named = {address for task in tasks.values() for address in (task.waiter, _through(task.chain)) if address}
    kinds = {address: objects.kind(address).decode(errors="replace").rpartition(".")[2] for address in named}
    sleeps = {task.waiter for task in tasks.values() if _sleeps(task.chain)}
    main = frozenset(one.address for one in tasks.values() if any(_ends_loop(objects, to) for to in one.callbacks))
    limited = frozenset(one.address for one in tasks.values() if any(_limits(objects, to) for to in one.chain.words))
    return Wakers(wakes, kinds, _find_timers(objects, sleeps) if sleeps else {}, main, limited)


def _limits(objects: Coroutines, word: int) -> bool:
    """What a `with` has on a coroutine's stack: the limit itself, or a method of it."""
    kind = objects.kind(word)
    return kind in _LIMITS or (
        kind == b"method" and objects.kind(objects.peek_word(word + objects.head + 8)) in _LIMITS
    )


def _ends_loop(objects: Coroutines, callback: int) -> bool:
    """By the name of the function, which stands in another place in each release."""
    try:
        words = objects.words(callback + objects.head, 9) if objects.kind(callback) == b"function" else ()
        return any(word and objects.kind(word) == b"str" and objects.text(word) == _MAIN for word in words)
    except Torn:
        return False


def _through(chain: Chain) -> int:
    """The object in whose method of asyncio's it awaits, if it does."""
    return chain.first if chain.frames and _LIBRARY.search(chain.frames[-1].file or "") else 0


def _sleeps(chain: Chain) -> bool:
    return bool(_through(chain)) and chain.frames[-1].function == "sleep"


def list_callbacks(objects: Coroutines, future: int) -> list[int]:
    """Whom it calls when it is done: the first has a field of its own, the others are in a list."""
    others = objects.field(future, 24)
    pairs = objects.items(others, _MOST_CALLBACKS) if others else ()
    callbacks = [objects.field(future, 8), *((*objects.items(pair), 0)[0] for pair in pairs)]
    return [callback for callback in callbacks if callback]


def _find_referred(objects: Coroutines, callback: int) -> set[int]:
    """What it knows, and what is known to those whom a future that it knows calls in turn: a gather in a gather."""
    found: set[int] = set()
    left = [callback]
    while left and len(found) < _MOST_REFERRED:
        for one in set(_list_referred(objects, left.pop())) - found:
            found.add(one)
            if objects.kind(one) in _FUTURES:
                with contextlib.suppress(Torn):
                    left += list_callbacks(objects, one)
    return found


def _list_referred(objects: Coroutines, callback: int) -> Iterator[int]:
    """What a callback knows: the variables of a closure, the arguments of a partial, the object of a method."""
    try:
        kind = objects.kind(callback)
        if kind == b"method":
            yield objects.field(callback, 8)
        elif kind == b"functools.partial":
            yield from objects.items(objects.field(callback, 8))
        elif kind == b"function":
            for word in objects.words(callback + objects.head, 9):
                for cell in objects.items(word):
                    if objects.kind(cell) == b"cell":
                        yield objects.field(cell)
    except Torn:
        return


def _find_timers(objects: Coroutines, futures: set[int]) -> dict[int, float]:
    """When each will be set, by the loop's clock: a TimerHandle has the future among its arguments."""
    ends: dict[int, float] = {}
    for kind in find_types(objects, _TIMER):
        for address in list_instances(objects, kind):
            try:
                words = objects.words(address + objects.head, min((objects.size_of(kind) - objects.head) // 8, 14))
                known = {one for word in words for one in objects.items(word)} & futures
                when = next((word for word in words if known and objects.kind(word) == b"float"), None)
                if when is not None:
                    ends |= dict.fromkeys(known, struct.unpack("<d", objects.read(when + objects.head, 8))[0])
            except Torn:
                continue
    return ends


def describe(tasks: dict[int, Task], wakers: Wakers, before: Mapping[int, Trace] | None = None) -> list[AsyncTask]:
    """Each; of very many, one for all that stand alike. `before`: how those stood that were there earlier."""
    if len(tasks) <= _MOST_SHOWN:
        moved = {at: before.get(at) != trace for at, trace in trace_tasks(tasks, wakers).items()} if before else {}
        return [replace(_describe(one, tasks, wakers, {}), moved=moved.get(one.address)) for one in tasks.values()]
    alike: dict[tuple[object, ...], list[Task]] = {}
    for task in tasks.values():
        kind = wakers.kinds.get(task.waiter)
        alike.setdefault((task.chain.state, task.chain.frames, kind, bool(task.waiter)), []).append(task)
    first = {task.address: some[0].address for some in alike.values() for task in some}
    shown = [_describe(some[0], tasks, wakers, first) for some in alike.values()]
    return [replace(one, count=len(some)) for one, some in zip(shown, alike.values())][:_MOST_SHOWN]  # noqa: B905


def trace_tasks(tasks: dict[int, Task], wakers: Wakers) -> dict[int, Trace]:
    """Where each stands, with what, for what and until when: the same as long as it does not run. What it makes anew
    may come to be at the same address, and only the end of a sleep is sure to differ."""
    return {
        address: (task.chain.state, task.chain.words, task.waiter, wakers.timers.get(task.waiter))
        for address, task in tasks.items()
    }


def _describe(task: Task, tasks: dict[int, Task], wakers: Wakers, stands_for: dict[int, int]) -> AsyncTask:
    chain, waiter, through = task.chain, task.waiter, _through(task.chain)
    by = [waiter] if waiter in tasks else wakers.tasks.get(waiter) or wakers.tasks.get(through) or []
    by = list(dict.fromkeys(stands_for.get(one, one) for one in by if one != task.address))
    end = wakers.timers.get(waiter)
    return AsyncTask(
        name=task.name,
        address=hex(task.address),
        state=_tell_state(chain, bool(waiter)),
        frames=tuple(reversed(chain.frames)),
        awaits=wakers.kinds.get(waiter) or None,
        through=wakers.kinds.get(through) or None,
        tasks=tuple(map(hex, by[:_MOST_SHOWN])),
        direct=waiter in tasks,
        ends_in_s=None if end is None else round(max(0.0, end - time.monotonic()), 1),
        main=task.address in wakers.main,
        limited=task.address in wakers.limited,
    )


def _tell_state(chain: Chain, waits: bool) -> TaskState:
    if chain.state == "running":
        return "running"
    if waits:
        return "waiting"
    return "new" if chain.state == "new" else "ready"
