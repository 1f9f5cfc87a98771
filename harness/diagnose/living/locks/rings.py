"""Do threads of one process wait for each other in a ring: locks, imports, joins, the GIL, mutexes of the C library?

What nobody in a ring could do is judged in `abandoned`; locks that a fork has copied, in `deadlocks`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from harness.diagnose.living.locks.abandoned import could_be_woken, tell_interruption
from harness.diagnose.living.scene import Finding, Scene, stack_of
from harness.diagnose.living.thread_waits import (
    find_holders,
    is_importing,
    is_timed,
    joins_thread,
    lock_wanted,
    mutex_wanted,
    name_thread,
    owner_wanted,
    python_frames,
    tell_place,
    waits_for_import,
    wants_gil,
)
from harness.documents.verdict import Frame, Ground, Status
from harness.evidence.living.look import HeldLock, LivingProcess, LivingThread


class Edge(NamedTuple):
    """`waiter` cannot go on before `holder` lets go of `what`, or has ended."""

    waiter: LivingThread
    holder: LivingThread
    what: str
    inferred: bool
    held: HeldLock | None = None
    ends: bool = False


def find_lock_ring(scene: Scene, process: LivingProcess) -> Finding | None:
    """Where the ring is only inferred, that nobody else is left proves that it is one, or who holds what else."""
    waiting = [*scene.standing(process), *(thread for thread in process.threads if _spins_for_gil(scene, thread))]
    ring = find_ring([edge for thread in waiting for edge in _edges(process, thread)])
    inferred = any(edge.inferred for edge in ring)
    proven = not could_be_woken(scene, process)
    if not ring or (inferred and not proven and _may_come_undone(process, ring)):
        return None
    detail = "; ".join(_tell_member(process, edge) for edge in ring)
    grounds = [_tell_edge(process, edge) for edge in ring]
    if inferred and proven:
        grounds.append(Ground("every other thread waits too, and nobody is left to wake one", f"/proc/{process.pid}"))
    may_end = tell_interruption(process) if any(_runs_handlers(process, edge) for edge in ring) else None
    status: Status = "supported" if may_end or (inferred and not proven) else "established"
    against = ["who holds what was inferred from the source, not read from the locks"] if inferred else []
    against += [may_end] if may_end else []
    return Finding(status, process, ring[0].waiter, detail, tuple(grounds), tuple(against))


def _runs_handlers(process: LivingProcess, edge: Edge) -> bool:
    """Python's handlers run on the main thread, in its wait for a lock of Python's or for the end of a thread."""
    return edge.waiter.tid == process.pid and not wants_gil(edge.waiter) and not mutex_wanted(edge.waiter)


def _spins_for_gil(scene: Scene, thread: LivingThread) -> bool:
    """Who waits for the GIL wakes up every few milliseconds to ask again, so that it may be seen awake."""
    return wants_gil(thread) and not thread.changed and not scene.stands_still(thread) and not scene.is_busy(thread)


def _may_come_undone(process: LivingProcess, ring: list[Edge]) -> bool:
    """A plain lock that was not taken by `with` can be released by anybody: by a handler, by another thread."""
    loose = [edge for edge in ring if edge.inferred and edge.held is not None and not edge.held.by_with]
    return bool(loose) and (len(ring) == 1 or bool(process.rest and process.rest.handled_signals))


def _tell_member(process: LivingProcess, edge: Edge) -> str:
    name, holder = name_thread(process, edge.waiter), name_thread(process, edge.holder)
    waits = f"{name} waits at {tell_place(edge.waiter)} for {edge.what}"
    if edge.ends:
        return waits
    return f"{waits}, which it holds itself" if edge.waiter is edge.holder else f"{waits}, held by {holder}"


def _tell_edge(process: LivingProcess, edge: Edge) -> Ground:
    taken = f", taken at {tell_line(edge.held)}" if edge.held else ""
    inferred = " (inferred from the source)" if edge.inferred else ""
    return Ground(f"{_tell_member(process, edge)}{taken}{inferred}", stack_of(process, edge.waiter))


def tell_line(lock: HeldLock) -> str:
    return Frame(lock.file, lock.line, lock.function).place


def _edges(process: LivingProcess, thread: LivingThread) -> list[Edge]:
    if wants_gil(thread):
        return [Edge(thread, other, "the GIL", False) for other in process.threads if other.holds_gil]
    if mutex := mutex_wanted(thread):
        owners = [other for other in process.threads if other.tid == mutex.owner_tid]
        return [Edge(thread, other, mutex.expression, False) for other in owners]
    if waits_for_import(thread):
        return _import_edges(process, thread)
    if joins_thread(thread) and not is_timed(thread):
        return _join_edges(process, thread)
    lock = lock_wanted(thread)
    return [
        Edge(thread, holder.thread, lock.expression, holder.inferred, holder.held)
        for holder in (find_holders(process, lock) if lock else ())
        if lock is not None and holder.thread is not None
    ]


def _import_edges(process: LivingProcess, thread: LivingThread) -> list[Edge]:
    owner = owner_wanted(thread, "import")
    is_it: Callable[[LivingThread], bool] = lambda other: other.tid == owner if owner else is_importing(other)  # noqa: E731
    others = [other for other in process.threads if other is not thread and is_it(other)]
    return [Edge(thread, other, "the import lock of a module", inferred=owner is None) for other in others]


def _join_edges(process: LivingProcess, thread: LivingThread) -> list[Edge]:
    """Whom it joins, if that could be read; else the only other thread there is."""
    named = owner_wanted(thread, "join")
    others = [other for other in process.threads if other is not thread and python_frames(other)]
    joined = [other for other in others if other.tid == named] if named else others if len(others) == 1 else []
    return [
        Edge(thread, other, f"the end of {name_thread(process, other)}", inferred=not named, ends=True)
        for other in joined
    ]


def find_ring(edges: list[Edge]) -> list[Edge]:
    """The first ring in which each waits for the next one; empty if there is none."""
    by_waiter: dict[int, list[Edge]] = {}
    for edge in edges:
        by_waiter.setdefault(edge.waiter.tid, []).append(edge)
    done: set[int] = set()

    def follow(tid: int, path: list[Edge]) -> list[Edge]:
        for start, edge in enumerate(path):
            if edge.waiter.tid == tid:
                return path[start:]
        if tid in done:
            return []
        for edge in by_waiter.get(tid, ()):
            if ring := follow(edge.holder.tid, [*path, edge]):
                return ring
        done.add(tid)
        return []

    return next((ring for tid in by_waiter if (ring := follow(tid, []))), [])
