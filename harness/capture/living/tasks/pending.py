"""Which asyncio tasks of a process are not done, where their coroutines stand, and which task will wake which. Linux.

Reads memory only (CPython 3.9 to 3.15, of free-threaded builds 3.13), stops and runs nothing, not even the
interpreter's own remote debugging: the objects are found by the type `_asyncio.Task`, the same way in all releases. A
task that cannot be read is a gap. Tasks of asyncio's pure Python (without its C part) are not seen.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from harness.capture.living.tasks.coroutines import (
    NEWEST,
    NEWEST_FREE_THREADED,
    OLDEST,
    TP_BASE,
    Coroutines,
    Torn,
    find_types,
    list_instances,
)
from harness.capture.living.tasks.event_loops import read_loops
from harness.capture.living.tasks.wakers import Task, Trace, describe, find_wakers, list_callbacks, trace_tasks
from harness.capture.proc import read_switches
from harness.capture.stacks.cpython.process_memory import Memory
from harness.evidence.gap import Gap
from harness.evidence.living.tasks import Tasks

_PROC = Path("/proc")
_WHAT = "asyncio tasks"
LOOP_FILE = re.compile(r"/asyncio/(?:base_events|runners)\.py$")
_TASK = b"_asyncio.Task"
_SEARCH_S = (4.0, 2.0)  # of time, of CPU
_READ_S, _READ_CPU_S = 2.0, 0.8
_MOST_BASES = 8
_BATCH = 64


class Reading(NamedTuple):
    """A gap beside tasks: there may be others. Without them nothing could be read. `standing`: how each stood."""

    tasks: Tasks | None
    gap: Gap | None
    standing: Mapping[int, Trace] | None = None


def read_tasks(
    pid: int,
    version: str | None,
    tids: list[int],
    proc: Path = _PROC,
    *,
    before: Mapping[int, Trace] | None = None,
    search_s: tuple[float, float] = _SEARCH_S,
) -> Reading:
    """`version` of CPython, as text; `tids`: which threads run a loop; `before`: how tasks stood when read earlier."""
    minor = _read_minor(version)
    if minor is None:
        return Reading(None, Gap(_WHAT, f"they cannot be read in CPython {version}"))
    switches = _count_switches(pid, tids, proc)
    try:
        memory = Memory(pid, proc, search_s=search_s)
    except OSError as error:
        return Reading(None, Gap(_WHAT, f"its memory could not be read: {error.strerror}"))
    try:
        search = _Search(Coroutines(memory, minor, free_threaded=_is_free_threaded(version)))
        tasks = search.list_tasks()
        wakers = find_wakers(search.objects, tasks)
        whole = search.is_whole and not search.unread and not search.left
    finally:
        memory.close()
    loops = tuple(read_loops(pid, tids, proc))
    stood = switches is not None and switches == _count_switches(pid, tids, proc)
    seen = Tasks(tuple(describe(tasks, wakers, before)), loops, whole and stood)
    return Reading(seen, search.tell_gap(), trace_tasks(tasks, wakers))


def _read_minor(version: str | None) -> int | None:
    found = re.match(r"3\.(\d+)", version or "")
    newest = NEWEST_FREE_THREADED if _is_free_threaded(version) else NEWEST
    return int(found[1]) if found and OLDEST <= int(found[1]) <= newest else None


def _is_free_threaded(version: str | None) -> bool:
    return "free-threaded" in (version or "")


def _count_switches(pid: int, tids: list[int], proc: Path) -> list[str] | None:
    """How often each went to sleep; null where one is gone."""
    try:
        return [switches for tid in tids for switches in read_switches(pid, tid, proc)[1]]
    except OSError:
        return None


class _Search:
    """`unread`: how many tasks did not fit together; `left`: how many were not read for lack of time."""

    def __init__(self, objects: Coroutines) -> None:
        self.objects, self._memory = objects, objects.memory
        self.unread = self.left = 0
        self.is_whole = self._is_known = False
        self._coroutine_at = 0

    def tell_gap(self) -> Gap | None:
        if not self._is_known:
            return Gap(_WHAT, "the type _asyncio.Task was not found in its memory")
        words = (
            [f"{self.unread} changed while they were read, or have a layout that is not known"] if self.unread else []
        )
        words += [f"{self.left} were found and not read: the time was over"] if self.left else []
        words += [] if self.is_whole else ["only a part of its memory was searched: there may be more"]
        return Gap(f"some {_WHAT}", "; ".join(words)) if words else None

    def list_tasks(self) -> dict[int, Task]:
        places = [(place, kind) for kind in self._list_kinds() for place in list_instances(self.objects, kind)]
        self.is_whole = self._memory.is_searched
        end, cpu_end = time.monotonic() + _READ_S, time.thread_time() + _READ_CPU_S
        found: dict[int, Task] = {}
        for at, (address, kind) in enumerate(places):
            if at % _BATCH == 0 and (time.monotonic() > end or time.thread_time() > cpu_end):
                self.left = len(places) - at
                break
            try:
                task = self._read_task(address, kind)
            except (Torn, IndexError):
                self.unread += 1
                continue
            if task is not None:
                found[address] = task
        return found

    def _list_kinds(self) -> list[int]:
        """The type and those derived from it."""
        kinds = list(find_types(self.objects, _TASK))
        self._is_known = bool(kinds)
        for kind in kinds:
            derived = (place - self.objects.head - TP_BASE for place in self._memory.find(kind))
            kinds += [one for one in derived if one not in kinds and self.objects.is_type(one)][:_MOST_BASES]
        return kinds

    def _read_task(self, address: int, kind: int) -> Task | None:
        """Null: it is done. The coroutine stands between the future it waits for, and its name and context."""
        head = self.objects.head
        words = self.objects.words(address + head, min((self.objects.size_of(kind) - head) // 8, 30))
        name_of = self.objects.kind
        if len(words) < 14 or self.objects.type_of(address) != kind:
            return None  # another object, that refers to the type
        order = (self._coroutine_at, *range(10, len(words) - 2))
        at = next((at for at in order if at and words[at] and name_of(words[at + 2]).endswith(b"Context")), None)
        if at is None or name_of(words[at + 1]) not in (b"str", b"int"):
            return None  # done, or not yet made
        self._coroutine_at = at
        chain = self.objects.follow(words[at])
        if chain.state == "done":
            return None
        callbacks = tuple(list_callbacks(self.objects, address))
        return Task(address, self._read_name(words[at + 1]), chain, words[at - 1], callbacks)

    def _read_name(self, address: int) -> str:
        """A number is a name that nobody has asked for yet (3.13)."""
        if self.objects.kind(address) == b"str":
            return self.objects.text(address)
        return f"Task-{int.from_bytes(self.objects.read(address + self.objects.head + 8, 4), 'little')}"
