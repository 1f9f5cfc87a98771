"""Do threads wait for what can never come: two OpenMP runtimes, what a fork left behind, a ring of locks?"""

from __future__ import annotations

from harness.diagnose.abandoned import find_abandoned, find_own_pool
from harness.diagnose.blame import find_crossing, is_openmp_function
from harness.diagnose.plumbing import is_plumbing
from harness.diagnose.rings import find_lock_ring, tell_line
from harness.diagnose.scene import Finding, Scene, stack_of
from harness.diagnose.verdict import Ground
from harness.diagnose.waiting import (
    find_gomp,
    find_holders,
    has_dead_owner,
    is_same_lock,
    is_timed,
    lock_wanted,
    name_function,
    name_thread,
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
    grounds = [
        born,
        Ground(f"its only thread waits for {lock.expression} at {tell_line(lock)}", stack_of(process, thread)),
    ]
    parent = scene.find(process.ppid)
    holders = [holder for holder in find_holders(parent, lock) if holder.thread] if parent else []
    if parent and holders and holders[0].thread:
        name = name_thread(parent, holders[0].thread)
        grounds.append(Ground(f"in the parent {lock.expression} is held by {name}", f"memory of {parent.pid}"))
    detail = f"{lock.expression}, which a thread of the parent had at the moment of the fork"
    return Finding("established" if holders else "supported", process, thread, detail, tuple(grounds))


# Locks


def find_lock_deadlock(scene: Scene) -> Finding | None:
    for process in scene.processes:
        for rule in (find_lock_ring, _dead_holder, find_abandoned, find_own_pool):
            if found := rule(scene, process):
                return found
    return None


def _dead_holder(scene: Scene, process: LivingProcess) -> Finding | None:
    for thread in scene.standing(process):
        lock = lock_wanted(thread)
        if lock is None or not has_dead_owner(process, lock):
            continue
        name, what = name_thread(process, thread), lock.expression
        owner = f"thread {lock.owner_tid}" if lock.owner_tid is not None else "a thread"
        grounds = (
            Ground(f"{name} waits for {what} at {tell_line(lock)}", stack_of(process, thread)),
            Ground(f"{what} names {owner} as its owner; no such thread is alive", f"memory of {process.pid}"),
        )
        detail = f"{name} waits at {tell_place(thread)} for {what}, whose owner has ended"
        return Finding("established", process, thread, detail, grounds)
    return None
