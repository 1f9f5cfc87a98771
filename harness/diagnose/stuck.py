"""Is somebody in this look stuck for good: stopped, in a deadlock, or waiting for a device, a rank, a child, a file?

The rules that find a fault in the living, one function each. Slow, busy and idle are told apart in `alive`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from harness.diagnose.blame import find_component_frame, find_crossing, is_openmp_function
from harness.diagnose.plumbing import is_plumbing
from harness.diagnose.tree import tell_ranks
from harness.diagnose.verdict import Frame, Ground, Remedy, Status
from harness.diagnose.waiting import (
    READS,
    WRITES,
    find_collective_frame,
    find_device,
    find_gomp,
    find_holders,
    find_io,
    has_dead_owner,
    is_collective,
    is_importing,
    is_in_queue,
    is_same_lock,
    is_timed,
    joins_thread,
    lock_wanted,
    main_thread,
    name_collective_library,
    name_function,
    name_thread,
    owner_wanted,
    python_frames,
    tell_place,
    tell_target,
    user_frame,
    waits_for_device_file,
    waits_for_import,
    waits_in_allocator,
)
from harness.evidence.alive import Counter, HeldLock, LivingProcess, LivingThread, Look
from harness.evidence.crash import CrashFrame
from harness.evidence.openmp import Runtime

_BUSY_SHARE = 0.2
_RUNNABLE_SHARE = 0.02  # of one that wants the CPU and gets little of it
_LOCAL_SAMPLES = 3
_RESULT_FILES = re.compile(
    r"/multiprocessing/(?:pool|queues|connection|managers)\.py$|/torch/utils/data/dataloader\.py$"
    r"|/concurrent/futures/(?:_base|process)\.py$|/joblib/\w+\.py$"
)
_END_FILES = re.compile(
    r"/multiprocessing/(?:popen_\w+|process)\.py$|/subprocess\.py$|/torch/multiprocessing/spawn\.py$"
    r"|/torch/distributed/(?:elastic|launcher)/"
)
_END_CALLS = re.compile(r"wait4|waitid|wait|waitpid")
_POOL = re.compile(r"/multiprocessing/pool\.py$")
WORKER_LOOP = re.compile(
    r"/multiprocessing/pool\.py:worker$|/_utils/worker\.py:_worker_loop$|/concurrent/futures/process\.py:_process_worker$"
)
_WORKER_PLUMBING = re.compile(r"/multiprocessing/|/(?:selectors|threading|queue)\.py$")
HELPER = re.compile(r"multiprocessing\.(?:resource_tracker|forkserver|semaphore_tracker)")


class Finding(NamedTuple):
    """`thread` null: the process as a whole. `culprit`: the native frame that names the component.

    `remedies` stand for those of the kind where the cause allows better ones.
    """

    status: Status
    process: LivingProcess
    thread: LivingThread | None
    detail: str
    grounds: tuple[Ground, ...] = ()
    against: tuple[str, ...] = ()
    culprit: CrashFrame | None = None
    remedies: tuple[Remedy, ...] = ()


class Scene:
    """The look from one target: that process first, then those below it; `everybody` are all that were looked at."""

    def __init__(self, look: Look, pid: int | None = None) -> None:
        self.look = look
        self.looked_s = max(look.looked_s, 0.001)
        self.everybody = look.processes
        roots = [pid] if pid is not None else list(look.targets)
        self.processes = tuple(self._below(roots))
        self.rising = [
            (process, counter) for process in self.processes for counter in process.counters if moves(counter)
        ]

    def _below(self, pids: Iterable[int]) -> Iterable[LivingProcess]:
        waiting, seen = list(pids), set()
        while waiting:
            pid = waiting.pop(0)
            process = self.find(pid)
            if process is None or pid in seen:
                continue
            seen.add(pid)
            yield process
            waiting += [child.pid for child in self.children(process)]

    def find(self, pid: int) -> LivingProcess | None:
        return next((process for process in self.everybody if process.pid == pid), None)

    def children(self, process: LivingProcess) -> list[LivingProcess]:
        return [child for child in self.everybody if child.ppid == process.pid or child.pid in process.children]

    def is_busy(self, thread: LivingThread) -> bool:
        share = thread.cpu_s / self.looked_s
        return share >= _BUSY_SHARE or (thread.state == "R" and share >= _RUNNABLE_SHARE)

    def stands_still(self, thread: LivingThread) -> bool:
        """Asleep in one place for the whole look."""
        return thread.state in "SD" and not thread.changed and not self.is_busy(thread)

    def standing(self, process: LivingProcess) -> list[LivingThread]:
        """The main thread first."""
        found = [thread for thread in process.threads if self.stands_still(thread)]
        return sorted(found, key=lambda thread: thread.tid != process.pid)


def moves(counter: Counter) -> bool:
    """An integer in a frame has to be seen rising more than once."""
    enough = counter.kind != "local" or len(counter.values) >= _LOCAL_SAMPLES
    return len(counter.values) > 1 and enough and counter.rises


def stack_of(process: LivingProcess, thread: LivingThread) -> str:
    return f"stack of {process.pid}/{thread.tid}"


# Stopped


def find_stopped(scene: Scene) -> Finding | None:
    """The target itself; one below it only when nothing moves: it may be meant to rest."""
    for process in scene.processes[: 1 if scene.rising else None]:
        held = process.threads and all(thread.state in "Tt" for thread in process.threads)
        if process.frozen or process.state in "Tt" or held:
            return _tell_stop(process)
    return None


def _tell_stop(process: LivingProcess) -> Finding:
    source = f"/proc/{process.pid}/status"
    traced = process.tracer_pid is not None
    if process.frozen:
        detail, source = "its control group is frozen", "cgroup.freeze"
        do = "Thaw it: write 0 to cgroup.freeze of its control group (docker unpause, systemctl thaw)."
    elif process.state == "t" or traced:
        tracer = f"the tracer, process {process.tracer_pid}," if traced else "a tracer that could not be named"
        detail = f"{tracer} keeps it stopped"
        do = "Let the tracer (a debugger, strace) continue or end: the process then goes on."
    else:
        detail = "by SIGSTOP or another job-control signal (SIGTSTP, SIGTTIN, SIGTTOU)"
        do = f"Let it go on: kill -CONT {process.pid}"
    grounds = (Ground(f"state {process.state}: {detail}", source),)
    remedies = (Remedy(do, True, "it is not stuck, it is not allowed to run"),)
    return Finding("established", process, main_thread(process), detail, grounds, remedies=remedies)


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


# Other ranks


def find_blocked_collective(scene: Scene) -> Finding | None:
    if scene.rising:
        return None
    for process in scene.processes:
        thread = find_in_collective(scene, process)
        if thread is not None:
            return _tell_collective(scene, process, thread)
    return None


def find_in_collective(scene: Scene, process: LivingProcess) -> LivingThread | None:
    """Asleep or spinning there: some libraries poll."""
    found = [thread for thread in process.threads if is_collective(thread) and not thread.changed]
    return next(iter(sorted(found, key=lambda thread: thread.tid != process.pid)), None)


def _tell_collective(scene: Scene, process: LivingProcess, thread: LivingThread) -> Finding:
    library = name_collective_library(process, thread)
    groups = _group_ranks(scene)
    arrived = {key: ranks for key, ranks in groups.items() if key[0]}
    late = {key: ranks for key, ranks in groups.items() if not key[0]}
    grounds = tuple(
        Ground(f"{tell_ranks(_numbers(ranks))}: {'in ' + library if key[0] else 'not there'}, at {key[1]}", "stacks")
        for key, ranks in sorted(groups.items(), key=lambda item: (item[0][0], len(item[1])))
    ) or (Ground(f"waits in {library} at {tell_place(thread)}", stack_of(process, thread)),)
    odd = late or (arrived if len(arrived) > 1 else {})
    if not odd:
        unseen = "ranks that were not looked at" if len(groups) < 2 and len(_all_ranks(groups)) < 2 else "each other"
        detail = f"{library} collective: it waits for {unseen}, at {tell_place(thread)}"
        return Finding("established", process, thread, detail, grounds, culprit=find_collective_frame(thread))
    key, ranks = min(odd.items(), key=lambda item: len(item[1]))
    tied = not late and len(ranks) == max(map(len, arrived.values()))
    instead = "has not arrived, it is" if late else "is in one," if tied else "is in another one,"
    others = ", ".join(f"{tell_ranks(_numbers(r))} at {k[1]}" for k, r in arrived.items() if k != key)
    rest = "in another" if tied else "waiting"
    detail = f"{library} collective: {tell_ranks(_numbers(ranks))} {instead} at {key[1]}; {rest}: {others}"
    stuck = ranks[0]
    there = find_in_collective(scene, stuck) or main_thread(stuck)
    culprit = find_collective_frame(thread)
    return Finding("established", stuck, there, detail, grounds, culprit=culprit)


def _group_ranks(scene: Scene) -> dict[tuple[bool, str], list[LivingProcess]]:
    """(in a collective, at which line) → who."""
    groups: dict[tuple[bool, str], list[LivingProcess]] = {}
    for process in scene.everybody:
        if process.rank is None or _is_below_rank(scene, process):
            continue
        inside = find_in_collective(scene, process)
        thread = inside or main_thread(process)
        place = tell_place(thread) if thread else "an unknown place"
        groups.setdefault((inside is not None, place), []).append(process)
    return groups


def _is_below_rank(scene: Scene, process: LivingProcess) -> bool:
    """A DataLoader worker inherits the rank of its parent."""
    parent = scene.find(process.ppid)
    return parent is not None and parent.rank == process.rank


def _all_ranks(groups: dict[tuple[bool, str], list[LivingProcess]]) -> list[LivingProcess]:
    return [process for members in groups.values() for process in members]


def _numbers(processes: list[LivingProcess]) -> list[int]:
    return [int(process.rank) for process in processes if process.rank and process.rank.isdigit()]


# A device


def find_blocked_device(scene: Scene) -> Finding | None:
    if scene.rising:
        return None
    for process in scene.processes:
        for thread in process.threads:
            frame = find_device(thread)
            if (frame is None and not waits_for_device_file(thread)) or not _stays(scene, process, thread):
                continue
            where = name_function(frame) if frame else tell_target(thread.wait) if thread.wait else "the driver"
            spins = "spins" if scene.is_busy(thread) else "sleeps"
            detail = f"it {spins} in {where}"
            ground = Ground(
                f"{detail} for all of the {scene.looked_s:.0f} s, no counter moves", stack_of(process, thread)
            )
            against = ("one long kernel looks the same for as long as it runs",)
            return Finding("established", process, thread, detail, (ground,), against, frame)
    return None


def _stays(scene: Scene, process: LivingProcess, thread: LivingThread) -> bool:
    """In the driver whenever it was looked at; a spinning one need not be at the same instruction."""
    return not thread.changed or (scene.is_busy(thread) and keeps_line(process, thread))


def keeps_line(process: LivingProcess, thread: LivingThread) -> bool:
    """On one Python line at every sample, while native code below it may move."""
    frames = python_frames(thread)
    spots = [spot for spot in process.hot if spot.tid == thread.tid and spot.frame.kind == "python"]
    return bool(frames) and any(
        spot.seen == spot.of > 1 and (spot.frame.function, spot.frame.line) == (frames[0].function, frames[0].line)
        for spot in spots
    )


# A child


class Link(NamedTuple):
    """`process` waits for `child`. `for_result`: for an answer it needs, not for its end or its output."""

    process: LivingProcess
    thread: LivingThread
    child: LivingProcess | None
    for_result: bool


def find_blocked_child(scene: Scene) -> Finding | None:
    if scene.rising:
        return None
    for process in scene.processes:
        found = _half_message(scene, process) or _judge_chain(scene, follow_chain(scene, process))
        if found is not None:
            return found
    return None


def follow_chain(scene: Scene, process: LivingProcess) -> list[Link]:
    """From a process to the one it waits for, and so on."""
    chain: list[Link] = []
    while (link := _link(scene, process)) is not None:
        chain.append(link)
        if link.child is None or any(link.child.pid == earlier.process.pid for earlier in chain):
            break
        process = link.child
    return chain


def _link(scene: Scene, process: LivingProcess) -> Link | None:
    children = [child for child in scene.children(process) if not HELPER.search(" ".join(child.argv))]
    living = [child for child in children if child.state != "Z" and child.ended is None]
    for thread in _waiters(scene, process) if children else ():
        wait = thread.wait
        peers = [child for child in living if wait and child.pid in wait.peer_pids]
        files = [frame.file for frame in _frames_above_user(thread)]
        ends = any(_END_FILES.search(file) for file in files) or bool(wait and _END_CALLS.fullmatch(wait.syscall or ""))
        result = not ends and _needs_result(process, files)
        if ends or result or (peers and wait and READS.fullmatch(wait.syscall or "")):
            return Link(process, thread, _pick(process, peers or living), result)
    return None


def _waiters(scene: Scene, process: LivingProcess) -> list[LivingThread]:
    """The main thread; if that waits for one thread and not for whatever comes, those that run the user's code."""
    main = main_thread(process)
    if main is None or scene.is_busy(main):
        return []
    if not (joins_thread(main) or lock_wanted(main) or _waits_for_future(main)):
        return [main]
    others = [thread for thread in process.threads if thread is not main and user_frame(thread)]
    return [main, *(thread for thread in others if not scene.is_busy(thread))]


def _waits_for_future(thread: LivingThread) -> bool:
    return any("/concurrent/futures/" in frame.file for frame in _frames_above_user(thread))


def _frames_above_user(thread: LivingThread) -> tuple[Frame, ...]:
    frames = python_frames(thread)
    own = user_frame(thread)
    return frames[: frames.index(own)] if own else frames


def _needs_result(process: LivingProcess, files: list[str]) -> bool:
    """A future may be a thread's: only an executor of processes has its module on some stack."""
    found = [file for file in files if _RESULT_FILES.search(file)]
    if found and all("/concurrent/futures/" in file for file in found):
        stacks = (frame.file for thread in process.threads for frame in python_frames(thread))
        return any(file.endswith("/concurrent/futures/process.py") for file in stacks)
    return bool(found)


def _pick(parent: LivingProcess, children: list[LivingProcess]) -> LivingProcess | None:
    """The one at work: whoever waits for a task keeps nobody waiting. One that stands still before one that changes."""
    working = [child for child in children if not is_idle_worker(child) and not _listens_to(child, parent)]
    return min(working, key=lambda child: any(thread.changed for thread in child.threads), default=None)


def _listens_to(child: LivingProcess, parent: LivingProcess) -> bool:
    """It waits for the word of the very process that waits for it: most often for the next task."""
    main = main_thread(child)
    wait = main.wait if main else None
    return wait is not None and READS.fullmatch(wait.syscall or "") is not None and parent.pid in wait.peer_pids


def is_idle_worker(process: LivingProcess) -> bool:
    """Its loop waits for the next task: between the loop and the wait there is nothing but plumbing."""
    main = main_thread(process)
    for frame in python_frames(main) if main else ():
        if WORKER_LOOP.search(f"{frame.file}:{frame.function}"):
            return True
        if not _WORKER_PLUMBING.search(frame.file):
            return False
    return False


def _judge_chain(scene: Scene, chain: list[Link]) -> Finding | None:
    """Waiting for somebody's end is no fault, whatever he does; waiting for an answer that does not come is."""
    if not chain:
        return None
    last = chain[-1]
    if last.child is None:
        return _nobody_at_work(scene, last) if last.for_result else None
    end, thread = last.child, _stuck_thread(scene, last.child)
    if thread is None:
        return None
    told = tuple(_tell_link(link) for link in chain)
    wait = find_io(thread)
    full = wait is not None and WRITES.fullmatch(wait.syscall or "") and last.process.pid in wait.peer_pids
    if wait is not None and full:
        detail = f"{end.role} {end.pid} writes to a full pipe that only its waiting parent could empty, {_in(thread)}"
        ground = Ground(f"{end.pid}: {tell_target(wait)}", f"/proc/{end.pid}/syscall")
        return Finding("established", end, thread, detail, (*told, ground))
    if not any(link.for_result for link in chain) and (wait is None or last.process.python is None):
        return None
    busy = scene.is_busy(thread)
    doing = "on CPU, slow or endless," if busy else f"waiting: {tell_target(wait)}," if wait else "asleep"
    detail = f"{end.role} {end.pid} is {doing} {_in(thread)}"
    ground = Ground(f"{detail}; nothing changed for {scene.looked_s:.0f} s", stack_of(end, thread))
    against = (f"{end.pid} is on CPU: it may only be slow",) if busy else ()
    return Finding("supported" if busy else "established", end, thread, detail, (*told, ground), against)


def _in(thread: LivingThread) -> str:
    return f"in {tell_place(thread)}"


def _stuck_thread(scene: Scene, process: LivingProcess) -> LivingThread | None:
    """The one that works, else the main one."""
    busy = [thread for thread in process.threads if scene.is_busy(thread)]
    return max(busy, key=lambda thread: thread.cpu_s) if busy else main_thread(process)


def _tell_link(link: Link) -> Ground:
    whom = f"{link.child.role} {link.child.pid}" if link.child else "a worker"
    what = "the answer" if link.for_result else "the end or the output"
    name = name_thread(link.process, link.thread)
    fact = f"{link.process.pid} ({name}) waits for {what} of {whom} at {tell_place(link.thread)}"
    return Ground(fact, stack_of(link.process, link.thread))


def _zombies(scene: Scene, process: LivingProcess) -> list[LivingProcess]:
    return [child for child in scene.children(process) if child.state == "Z" or child.ended is not None]


def _tell_zombies(dead: list[LivingProcess]) -> str:
    return ", ".join(
        f"{child.role} {child.pid} is a zombie: it has ended and nobody has collected it" for child in dead
    )


def _half_message(scene: Scene, process: LivingProcess) -> Finding | None:
    """It reads from a pipe that only itself could still write to, and a child that could have is dead."""
    dead = _zombies(scene, process)
    for thread in scene.standing(process) if dead else ():
        wait = thread.wait
        if wait is None or not READS.fullmatch(wait.syscall or "") or "pipe" not in (wait.target or ""):
            continue
        if set(wait.peer_pids) <= {process.pid, *(child.pid for child in dead)}:
            detail = f"it reads from a pipe whose writer is dead, {_in(thread)}; {_tell_zombies(dead)}"
            grounds = (
                Ground(
                    f"{name_thread(process, thread)} stays there: {tell_target(wait)}", f"/proc/{process.pid}/syscall"
                ),
                Ground(_tell_zombies(dead), "process states"),
            )
            return Finding("established" if wait.peer_pids else "supported", process, thread, detail, grounds)
    return None


def _nobody_at_work(scene: Scene, link: Link) -> Finding | None:
    """An answer is awaited, and nobody works on it."""
    dead = _zombies(scene, link.process)
    pool = any(_POOL.search(frame.file) for frame in _frames_above_user(link.thread))
    workers = [child for child in scene.children(link.process) if is_idle_worker(child)]
    if not dead and not (pool and workers):
        return None
    idle = f"all {len(workers)} living workers wait for a task" if workers else "no worker is alive"
    ages = [worker.age_s for worker in workers]
    younger = f", one {max(ages) - min(ages):.1f} s younger than another" if len(ages) > 1 else ""
    lost = _tell_zombies(dead) if dead else "a task was lost, as when a worker dies in it (bpo-22393)"
    what = "a Pool's result" if pool else "a worker's answer"
    detail = f"it waits for {what} {_in(link.thread)}, but {idle}; {lost}"
    grounds = (_tell_link(link), Ground(f"{idle}{younger}", "stacks of the workers"))
    return Finding("supported", link.process, link.thread, detail, grounds)


# A file, a socket, a file lock


def find_blocked_io(scene: Scene) -> Finding | None:
    if scene.rising or not scene.processes:
        return None
    start = scene.processes[0]
    chain = follow_chain(scene, start)
    end = chain[-1].child if chain else start
    for thread in _waiters(scene, end) if end and not is_idle_worker(end) else ():
        wait = find_io(thread)
        if end is None or wait is None or not scene.stands_still(thread):
            continue
        deep = "uninterruptible, " if thread.state == "D" else ""
        detail = f"{deep}{tell_target(wait)}"
        name = name_thread(end, thread)
        ground = Ground(
            f"{name} stays {_in(thread)}: {tell_target(wait)}", f"/proc/{end.pid}/task/{thread.tid}/syscall"
        )
        culprit = find_component_frame(thread.stack)
        return Finding("established", end, thread, detail, (*(_tell_link(link) for link in chain), ground), (), culprit)
    return None
