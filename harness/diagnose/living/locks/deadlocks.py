"""Do threads wait for what can never come: two OpenMP runtimes, a ring, a lock that nobody is left to release?"""

from __future__ import annotations

from harness.diagnose.frames import find_crossing, is_openmp_function
from harness.diagnose.living.locks.abandoned import find_abandoned, find_own_pool, tell_interruption
from harness.diagnose.living.locks.rings import find_lock_ring, tell_line
from harness.diagnose.living.scene import Finding, Scene, stack_of
from harness.diagnose.living.thread_waits import has_dead_owner, lock_wanted, name_thread, tell_place
from harness.diagnose.plumbing import is_plumbing
from harness.documents.verdict import Ground
from harness.evidence.crash import CrashFrame
from harness.evidence.living.look import LivingProcess
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
        may_end = tell_interruption(process) if thread.tid == process.pid else None
        if may_end:
            return Finding("supported", process, thread, detail, grounds, (may_end,))
        return Finding("established", process, thread, detail, grounds)
    return None
