"""Does a forked child wait for what only its parent has: the threads of a pool, or of whoever had a lock at the fork?

fork copies memory and the one thread that asks for it. A child may have made threads of its own since; a pool is served
by a thread that has the pool's library on its stack, and by no other. Locks taken after the fork are `rings`' business.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from harness.diagnose.living.locks.abandoned import could_be_woken, tell_interruption
from harness.diagnose.living.locks.rings import tell_line
from harness.diagnose.living.scene import Finding, Scene, stack_of
from harness.diagnose.living.thread_waits import (
    find_gomp,
    find_holders,
    is_same_lock,
    is_timed,
    lock_wanted,
    name_function,
    name_thread,
    natives_above,
    python_frames,
    waits_for_import,
    waits_in_allocator,
)
from harness.diagnose.plumbing import image_name, is_interpreter, is_plumbing, symbol_of
from harness.documents.verdict import Ground, Status
from harness.evidence.crash import CrashFrame
from harness.evidence.living.look import HeldLock, LivingProcess, LivingThread

# Pools of Rust's, which are compiled into the library that uses them. Their names may be mangled: "5tokio7runtime".
_RUST_POOLS = tuple((name, re.compile(rf"(?<![A-Za-z_]){name}(?:_core)?(?![A-Za-z_])")) for name in ("tokio", "rayon"))


class Pool(NamedTuple):
    """`named`: it is known to be a pool of threads; else a library waits, for whatever it may be."""

    name: str
    frame: CrashFrame
    named: bool


def find_fork_deadlock(scene: Scene) -> Finding | None:
    for process in scene.processes:
        if not process.forked or (process.parent_threads or 0) < 2:
            continue
        for thread in scene.standing(process):
            futex = thread.wait is None or thread.wait.syscall in ("futex", None)
            if futex and not is_timed(thread) and (found := _inherited(scene, process, thread)):
                return found
    return None


def _inherited(scene: Scene, process: LivingProcess, thread: LivingThread) -> Finding | None:
    """What the child has inherited without the thread that would let it go."""
    others = [other for other in process.threads if other is not thread]
    if others and not python_frames(thread):
        return None  # a worker of a pool, which rests
    if pool := find_pool(process, thread):
        return _tell_pool(scene, process, thread, pool) if not _is_served(others, pool) else None
    if any(not other.stack or python_frames(other) for other in others):
        return None  # it may have taken the lock after the fork
    if found := _inherited_in_c(process, thread, others):
        return found
    lock = lock_wanted(thread)
    return _inherited_lock(scene, process, thread, lock, _tell_birth(process)) if lock else None


def _tell_birth(process: LivingProcess) -> Ground:
    count = len(process.threads)
    has = "one thread" if count == 1 else f"{count} threads, all but one made after the fork"
    fact = f"process {process.pid} has {has}; it was forked from {process.ppid}, which has {process.parent_threads}"
    return Ground(fact, f"/proc/{process.pid}/status")


# Pools


def find_pool(process: LivingProcess, thread: LivingThread) -> Pool | None:
    """Whose threads it waits for in native code. A lock of Python's is nobody's pool."""
    runtimes = process.openmp.runtimes if process.openmp else ()
    gnu = frozenset(runtime.place.image for runtime in runtimes if runtime.family == "gnu")
    if frame := find_gomp(thread, gnu):
        return Pool("libgomp", frame, named=True)
    frames = [frame for frame in natives_above(thread) if not is_plumbing(frame)]
    for name, pattern in _RUST_POOLS:
        if frame := next((frame for frame in frames if pattern.search(symbol_of(frame) or "")), None):
            return Pool(f"{name} (in {image_name(frame.image)})", frame, named=True)
    frame = next(iter(frames), None)
    if frame is None or is_interpreter(frame.image) or "/lib-dynload/" in (frame.image or "") or thread.locks:
        return None
    return Pool(image_name(frame.image), frame, named=False)


def _is_served(others: list[LivingThread], pool: Pool) -> bool:
    """A thread whose stack is not known may be one of the pool's."""
    return any(not other.stack or any(frame.image == pool.frame.image for frame in other.stack) for other in others)


def _tell_pool(scene: Scene, process: LivingProcess, thread: LivingThread, pool: Pool) -> Finding | None:
    proven = could_be_woken(scene, process) is None
    if not pool.named and not proven:
        return None
    alone = len(process.threads) == 1
    status: Status = "established" if pool.named and (alone or proven) else "supported"
    detail = f"{pool.name}'s thread pool, whose threads exist only in the parent"
    if not pool.named:
        detail = f"a thread of {pool.name}, and those it had exist only in the parent"
    asleep = Ground(f"asleep inside {pool.name}: {name_function(pool.frame)}", stack_of(process, thread))
    served = () if alone else (Ground(f"no other thread is inside {image_name(pool.frame.image)}", "stacks"),)
    against = () if pool.named else ("that it is a pool it waits for follows from the fork; it was not read",)
    grounds = (_tell_birth(process), asleep, *served)
    return Finding(status, process, thread, detail, grounds, against, culprit=pool.frame)


# Locks


def _inherited_in_c(process: LivingProcess, thread: LivingThread, others: list[LivingThread]) -> Finding | None:
    born, where = _tell_birth(process), stack_of(process, thread)
    if waits_in_allocator(thread):
        detail = "malloc's lock, which a thread of the parent had at the moment of the fork"
        status: Status = "supported" if others else "established"
        return Finding(status, process, thread, detail, (born, Ground("asleep on a lock inside malloc", where)))
    if waits_for_import(thread):
        detail = "the import lock, which a thread of the parent had at the moment of the fork"
        return Finding("supported", process, thread, detail, (born, Ground("asleep in the import machinery", where)))
    return None


def _inherited_lock(
    scene: Scene, process: LivingProcess, thread: LivingThread, lock: HeldLock, born: Ground
) -> Finding | None:
    """Its copy of the lock is taken. That the parent's is too says who had it when they were still one process."""
    if any(is_same_lock(held, lock) for held in thread.locks if not held.waiting):
        return None  # taken twice by itself: not the fork's doing
    grounds = [
        born,
        Ground(f"its only Python thread waits for {lock.expression} at {tell_line(lock)}", stack_of(process, thread)),
    ]
    parent = scene.find(process.ppid)
    holders = [holder for holder in find_holders(parent, lock) if holder.thread] if parent else []
    if parent and holders and holders[0].thread:
        name = name_thread(parent, holders[0].thread)
        grounds.append(Ground(f"in the parent {lock.expression} is held by {name}", f"memory of {parent.pid}"))
    detail = f"{lock.expression}, which a thread of the parent had at the moment of the fork"
    may_end = tell_interruption(process)
    status: Status = "established" if holders and not may_end else "supported"
    return Finding(status, process, thread, detail, tuple(grounds), (may_end,) if may_end else ())
