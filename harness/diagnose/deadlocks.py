"""Do threads wait for what can never come: two OpenMP runtimes, what a fork left behind, a ring of locks?"""

from __future__ import annotations

from typing import NamedTuple

from harness.diagnose.blame import find_crossing, is_openmp_function
from harness.diagnose.plumbing import is_plumbing
from harness.diagnose.scene import Finding, Scene, stack_of
from harness.diagnose.verdict import Frame, Ground
from harness.diagnose.waiting import (
    find_gomp,
    find_holders,
    has_dead_owner,
    is_importing,
    is_in_queue,
    is_same_lock,
    is_timed,
    joins_thread,
    lock_wanted,
    name_function,
    name_thread,
    owner_wanted,
    python_frames,
    tell_place,
    waits_for_import,
    waits_in_allocator,
)
from harness.evidence.alive import HeldLock, LivingProcess, LivingThread
from harness.evidence.crash import CrashFrame
from harness.evidence.openmp import Runtime

# Two OpenMP runtimes


def find_openmp_deadlock(scene: Scene) -> Finding | None:
    for process in scene.processes:
        bases = _openmp_bases(process)
        for thread in process.threads:
            frames = [frame for frame in thread.stack if not is_plumbing(frame)]
            crossing = find_crossing([_base_of(process, frame) for frame in frames], bases)
            if crossing is None or thread.changed:
                continue
            inner = next(frame for frame in frames if _base_of(process, frame) == crossing[1])
            calling, called = (_image_at(process, frames, base) for base in crossing)
            detail = f"{calling} calls straight into {called}"
            ground = Ground(
                f"on one stack {detail}, at bases {crossing[0]} and {crossing[1]}", stack_of(process, thread)
            )
            return Finding("established", process, thread, detail, (ground,), culprit=inner)
    return None


def _openmp_bases(process: LivingProcess) -> frozenset[str]:
    known = [runtime.place.base for runtime in _runtimes(process) if runtime.place.base and not runtime.static]
    frames = (frame for thread in process.threads for frame in thread.stack if is_openmp_function(frame))
    seen = [base for frame in frames if (base := _base_of(process, frame))]
    return frozenset(hex(int(base, 16)) for base in [*known, *seen])


def _runtimes(process: LivingProcess) -> tuple[Runtime, ...]:
    return process.openmp.runtimes if process.openmp else ()


def _base_of(process: LivingProcess, frame: CrashFrame) -> str | None:
    """By its address; by its path only where the census knows that file once."""
    if frame.kind == "python":
        return None
    if frame.address is not None and frame.offset is not None:
        return hex(int(frame.address, 16) - int(frame.offset, 16))
    named = [runtime.place.base for runtime in _runtimes(process) if runtime.place.image == frame.image]
    return hex(int(named[0], 16)) if len(named) == 1 and named[0] else None


def _image_at(process: LivingProcess, frames: list[CrashFrame], base: str) -> str:
    return next(frame.image or base for frame in frames if _base_of(process, frame) == base)


# After fork


def find_fork_deadlock(scene: Scene) -> Finding | None:
    for process in scene.processes:
        if not process.forked or len(process.threads) != 1 or (process.parent_threads or 0) < 2:
            continue
        thread = process.threads[0]
        futex = thread.wait is None or thread.wait.syscall in ("futex", None)
        if (
            scene.stands_still(thread)
            and futex
            and not is_timed(thread)
            and (found := _inherited(scene, process, thread))
        ):
            return found
    return None


def _inherited(scene: Scene, process: LivingProcess, thread: LivingThread) -> Finding | None:
    """What the child has inherited without the thread that would let it go."""
    born = Ground(
        f"process {process.pid} has one thread; it was forked from {process.ppid}, which has {process.parent_threads}",
        f"/proc/{process.pid}/status",
    )
    where = stack_of(process, thread)
    gnu = frozenset(runtime.place.image for runtime in _runtimes(process) if runtime.family == "gnu")
    if frame := find_gomp(thread, gnu):
        detail = "libgomp's thread pool, whose threads exist only in the parent"
        ground = Ground(f"asleep inside libgomp: {name_function(frame)}", where)
        return Finding("established", process, thread, detail, (born, ground), culprit=frame)
    if waits_in_allocator(thread):
        detail = "malloc's lock, which a thread of the parent had at the moment of the fork"
        return Finding("established", process, thread, detail, (born, Ground("asleep on a lock inside malloc", where)))
    if waits_for_import(thread):
        detail = "the import lock, which a thread of the parent had at the moment of the fork"
        return Finding("supported", process, thread, detail, (born, Ground("asleep in the import machinery", where)))
    if lock := lock_wanted(thread):
        return _inherited_lock(scene, process, thread, lock, born)
    return None


def _inherited_lock(
    scene: Scene, process: LivingProcess, thread: LivingThread, lock: HeldLock, born: Ground
) -> Finding | None:
    """Its copy of the lock is taken. That the parent's is too says who had it when they were still one process."""
    if any(is_same_lock(held, lock) for held in thread.locks if not held.waiting):
        return None  # taken twice by itself: not the fork's doing
    grounds = [born, Ground(f"its only thread waits for {lock.expression} at {_at(lock)}", stack_of(process, thread))]
    parent = scene.find(process.ppid)
    holders = [holder for holder in find_holders(parent, lock) if holder.thread] if parent else []
    if parent and holders and holders[0].thread:
        name = name_thread(parent, holders[0].thread)
        grounds.append(Ground(f"in the parent {lock.expression} is held by {name}", f"memory of {parent.pid}"))
    detail = f"{lock.expression}, which a thread of the parent had at the moment of the fork"
    return Finding("established" if holders else "supported", process, thread, detail, tuple(grounds))


def _at(lock: HeldLock) -> str:
    return Frame(lock.file, lock.line, lock.function).place


# Locks


class Edge(NamedTuple):
    """`waiter` cannot go on before `holder` lets go of `what`."""

    waiter: LivingThread
    holder: LivingThread
    what: str
    inferred: bool
    held: HeldLock | None = None


def find_lock_deadlock(scene: Scene) -> Finding | None:
    for process in scene.processes:
        for rule in (_cycle, _dead_holder, _nobody_left, _nobody_takes):
            if found := rule(scene, process):
                return found
    return None


def _cycle(scene: Scene, process: LivingProcess) -> Finding | None:
    ring = find_ring([edge for thread in scene.standing(process) for edge in _edges(process, thread)])
    if not ring:
        return None
    inferred = any(edge.inferred for edge in ring)
    names = [name_thread(process, edge.waiter) for edge in ring]
    detail = " → ".join([*names, names[0]]) + ", over " + ", ".join(dict.fromkeys(edge.what for edge in ring))
    if len(ring) == 1:
        detail = f"{names[0]} waits for {ring[0].what}, which it holds itself"
    grounds = tuple(_tell_edge(process, edge) for edge in ring)
    against = ("who holds what was inferred from the source, not read from the locks",) if inferred else ()
    return Finding("supported" if inferred else "established", process, ring[0].waiter, detail, grounds, against)


def _tell_edge(process: LivingProcess, edge: Edge) -> Ground:
    taken = f", taken at {_at(edge.held)}" if edge.held else ""
    inferred = " (inferred from the source)" if edge.inferred else ""
    name, holder = name_thread(process, edge.waiter), name_thread(process, edge.holder)
    fact = f"{name} waits at {tell_place(edge.waiter)} for {edge.what}, held by {holder}{taken}{inferred}"
    return Ground(fact, stack_of(process, edge.waiter))


def _edges(process: LivingProcess, thread: LivingThread) -> list[Edge]:
    if waits_for_import(thread):
        owner = owner_wanted(thread, "import")
        others = [t for t in process.threads if t is not thread and (t.tid == owner if owner else is_importing(t))]
        return [Edge(thread, other, "the import lock of a module", inferred=owner is None) for other in others]
    if joins_thread(thread) and not is_timed(thread):
        return _join_edges(process, thread)
    lock = lock_wanted(thread)
    if lock is None:
        return []
    return [
        Edge(thread, holder.thread, lock.expression, holder.inferred, holder.held)
        for holder in find_holders(process, lock)
        if holder.thread is not None
    ]


def _join_edges(process: LivingProcess, thread: LivingThread) -> list[Edge]:
    """Whom it joins, if that could be read; else the only other thread there is."""
    named = owner_wanted(thread, "join")
    others = [other for other in process.threads if other is not thread and python_frames(other)]
    joined = [other for other in others if other.tid == named] if named else others if len(others) == 1 else []
    return [Edge(thread, other, f"the end of {name_thread(process, other)}", inferred=not named) for other in joined]


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


def _dead_holder(scene: Scene, process: LivingProcess) -> Finding | None:
    for thread in scene.standing(process):
        lock = lock_wanted(thread)
        if lock is None or not has_dead_owner(process, lock):
            continue
        name, what = name_thread(process, thread), lock.expression
        owner = f"thread {lock.owner_tid}" if lock.owner_tid is not None else "a thread"
        grounds = (
            Ground(f"{name} waits for {what} at {_at(lock)}", stack_of(process, thread)),
            Ground(f"{what} names {owner} as its owner; no such thread is alive", f"memory of {process.pid}"),
        )
        return Finding("established", process, thread, f"{name} waits for {what}, whose owner has ended", grounds)
    return None


def _nobody_left(scene: Scene, process: LivingProcess) -> Finding | None:
    """A plain lock names no owner; but who else could release it?"""
    python = [thread for thread in process.threads if python_frames(thread)]
    if len(python) != 1 or not scene.stands_still(python[0]):
        return None
    lock = lock_wanted(python[0])
    if lock is None or lock.owner_tid is not None:
        return None
    detail = (
        f"{name_thread(process, python[0])} waits for {lock.expression}, and no thread is left that could release it"
    )
    grounds = (
        Ground(f"waits for {lock.expression} at {_at(lock)}", stack_of(process, python[0])),
        Ground("no other thread of the process runs Python", f"threads of {process.pid}"),
    )
    against = (f"who took {lock.expression} could not be read: a plain lock does not name its owner",)
    return Finding("supported", process, python[0], detail, grounds, against)


def _nobody_takes(scene: Scene, process: LivingProcess) -> Finding | None:
    """Everybody puts into a full queue. (Everybody in get() may as well be idle: that is `waiting`.)"""
    python = [thread for thread in process.threads if python_frames(thread)]
    stuck = [t for t in python if scene.stands_still(t) and is_in_queue(t, "put") and not is_timed(t)]
    if not stuck or len(stuck) != len(python):
        return None
    first = next((thread for thread in stuck if thread.tid == process.pid), stuck[0])
    detail = f"{name_thread(process, first)} puts into a full queue that nobody is left to empty"
    grounds = (
        Ground(f"asleep in Queue.put(), called from {tell_place(first)}", stack_of(process, first)),
        Ground(
            "every thread that runs Python is in put(): who took from the queue has ended", f"threads of {process.pid}"
        ),
    )
    return Finding("supported", process, first, detail, grounds)
