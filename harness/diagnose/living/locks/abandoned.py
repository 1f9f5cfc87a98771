"""Is nobody left who could wake any thread of a process, or of a pool that waits for itself?

A thread in a futex that is this process's own, without a timeout, is woken by another thread of it or by nobody. When
all are in one at the same moment, none will ever go on, whatever they wait for; only the handler of a signal could
interfere. Does not say who should have acted.
"""

from __future__ import annotations

import re

from harness.diagnose.living.scene import Finding, Scene, stack_of
from harness.diagnose.living.thread_waits import (
    find_holders,
    is_timed,
    lock_wanted,
    name_thread,
    python_frames,
    sleeps_for_own,
    tell_place,
    tell_wanted,
)
from harness.diagnose.words import name_some
from harness.documents.verdict import Ground
from harness.evidence.living.look import LivingProcess, LivingThread

_MOST_TOLD = 6
SENT_TO_END = frozenset(["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGTSTP", "SIGCONT", "SIGWINCH", "SIGPIPE"])
_POOL_FILE = re.compile(r"/concurrent/futures/thread\.py$")
_FUTURE_FILE = re.compile(r"/concurrent/futures/_base\.py$")
_WORKER_NAME = re.compile(r"(?P<pool>.+)_\d+")
_SUBMITS = re.compile(r"\.(?:submit|map)\(")
# Who else could fulfil a future: a pool of processes, an event loop.
_OTHER_SOURCES = re.compile(r"/concurrent/futures/(?:process|interpreter)\.py$|/asyncio/\w+\.py$|/trio/|/anyio/")


def could_be_woken(scene: Scene, process: LivingProcess) -> str | None:
    """By whom; null: it is proven that nothing is left that could wake any thread."""
    rest = process.rest
    if rest is None or rest.handled_signals is None:
        return "a handler of a signal: which it has could not be read"
    awake = [t for t in process.threads if not (scene.stands_still(t) and sleeps_for_own(t))]
    if awake or not process.threads:
        return name_some([name_thread(process, thread) for thread in awake], _MOST_TOLD) or "a thread"
    if rest.handled_signals:
        return f"a handler of {name_some(list(rest.handled_signals), _MOST_TOLD)}"
    return None if rest.together else "a thread that has run meanwhile"


def tell_interruption(process: LivingProcess) -> str | None:
    """What may take its main thread out of a wait without being asked to, by an exception; null: nothing is known to.

    Python runs handlers on the main thread. What somebody sends who wants it to end, or a terminal, is no such thing.
    """
    handled = process.rest.handled_signals if process.rest and process.rest.handled_signals else ()
    own = [name for name in handled if name not in SENT_TO_END]
    return f"a handler of {name_some(own, _MOST_TOLD)} could still end the wait of MainThread" if own else None


def tell_chances(scene: Scene, process: LivingProcess, thread: LivingThread) -> list[str]:
    """Why a wait for another thread is not called a deadlock: who could end it, and what could not be read."""
    if not sleeps_for_own(thread):
        return []
    could = could_be_woken(scene, process)
    wanted = lock_wanted(thread)
    unread = wanted is not None and not find_holders(process, wanted)
    return [
        *([f"it could be woken by {could}"] if could else []),
        *([f"who holds {wanted.expression} could not be read"] if wanted and unread else []),
    ]


def find_abandoned(scene: Scene, process: LivingProcess) -> Finding | None:
    python = sorted((t for t in process.threads if python_frames(t)), key=lambda thread: thread.tid != process.pid)
    if not python or could_be_woken(scene, process):
        return None
    waits = [f"{name_thread(process, thread)} {_tell_wait(thread)}" for thread in python]
    if len(python) == 1:
        detail = f"{waits[0]}, and nobody is left that could wake it"
    else:
        told = name_some(waits, _MOST_TOLD)
        detail = f"every thread waits for another one of the process, and nobody is left: {told}"
    everybody = "its one thread is" if len(process.threads) == 1 else f"all {len(process.threads)} threads are"
    grounds = (
        *(
            Ground(f"{wait}, without a timeout", stack_of(process, t))
            for wait, t in zip(waits[:_MOST_TOLD], python, strict=False)
        ),
        Ground(
            f"{everybody} asleep, all at one moment, in a futex that only a thread of the process can wake",
            f"/proc/{process.pid}/task/*/syscall",
        ),
        Ground("no handler of a signal could let one go on", f"/proc/{process.pid}/status"),
    )
    return Finding("established", process, python[0], detail, grounds)


def _tell_wait(thread: LivingThread) -> str:
    """ "waits in jobs.get() at take_job (job.py:12)" """
    wanted = tell_wanted(thread)
    return f"waits {wanted + ' ' if wanted else ''}at {tell_place(thread)}"


# A pool that waits for itself


def find_own_pool(scene: Scene, process: LivingProcess) -> Finding | None:
    """All workers of a ThreadPoolExecutor wait for futures, and nobody else is there that fulfils any."""
    pools: dict[str, list[LivingThread]] = {}
    for thread in process.threads:
        if pool := _find_pool(thread):
            pools.setdefault(pool, []).append(thread)
    others = [t for t in process.threads if not _find_pool(t) and _may_fulfil(t)]
    if len(pools) != 1 or others:
        return None
    ((pool, workers),) = pools.items()
    if not all(scene.stands_still(worker) and _waits_for_future(worker) for worker in workers):
        return None
    if not all(_SUBMITS.search(tell_wanted(worker) or "") for worker in workers) and _has_others(scene, process):
        return None
    return _tell_own_pool(process, pool, workers)


def _tell_own_pool(process: LivingProcess, pool: str, workers: list[LivingThread]) -> Finding:
    which = f"the one worker of the pool {pool} waits" if len(workers) == 1 else f"all {len(workers)} workers wait"
    places = name_some(list(dict.fromkeys(tell_place(worker) for worker in workers)), _MOST_TOLD)
    detail = f"{which} for a future at {places}, and no worker is left to run its task"
    grounds = (
        *(
            Ground(f"{name_thread(process, worker)} {_tell_wait(worker)}, inside a task", stack_of(process, worker))
            for worker in workers[:_MOST_TOLD]
        ),
        Ground("no other pool, and no event loop, has a thread in the process", f"threads of {process.pid}"),
    )
    against = ("that the future is one of the same pool follows from there being no other; it was not read",)
    return Finding("supported", process, workers[0], detail, grounds, against)


def _find_pool(thread: LivingThread) -> str | None:
    """The name that the threads of one ThreadPoolExecutor have in common, of one that is a worker."""
    frames = python_frames(thread)
    works = any(_POOL_FILE.search(frame.file) and frame.function == "_worker" for frame in frames)
    named = _WORKER_NAME.fullmatch(thread.name or "")
    return (named["pool"] if named else thread.name or "") if works else None


def _waits_for_future(thread: LivingThread) -> bool:
    """In result(), exception() or as_completed(), of a task: below it stands the pool's own run()."""
    frames = python_frames(thread)
    asks = next((frame for frame in frames if not frame.file.endswith("/threading.py")), None)
    runs = any(_POOL_FILE.search(frame.file) and frame.function == "run" for frame in frames)
    return runs and asks is not None and bool(_FUTURE_FILE.search(asks.file)) and not is_timed(thread)


def _has_others(scene: Scene, process: LivingProcess) -> bool:
    """Another thread, or a handler of a signal, that could come and set a future which is no task's."""
    others = (thread for thread in process.threads if not _find_pool(thread))
    asleep = all(scene.stands_still(other) and sleeps_for_own(other) for other in others)
    return not asleep or tell_interruption(process) is not None


def _may_fulfil(thread: LivingThread) -> bool:
    return any(_OTHER_SOURCES.search(frame.file) for frame in python_frames(thread))
