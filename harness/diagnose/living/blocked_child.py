"""Does a process wait for a child or worker, and where does that chain end; or for a file, a socket, a file lock?"""

from __future__ import annotations

import re
from typing import NamedTuple

from harness.diagnose.frames import find_component_frame
from harness.diagnose.living.other_side import tell_hopeless
from harness.diagnose.living.scene import Finding, Scene, moves, stack_of
from harness.diagnose.living.thread_waits import (
    READS,
    WRITES,
    find_io,
    joins_thread,
    lock_wanted,
    main_thread,
    name_thread,
    python_frames,
    tell_place,
    tell_target,
    user_frame,
)
from harness.diagnose.living.wait_advice import advise
from harness.documents.verdict import Frame, Ground
from harness.evidence.living.look import LivingProcess, LivingThread, Wait

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
_PIPE_NAME = re.compile(r"pipe:\[\d+\]")
HELPER = re.compile(r"multiprocessing\.(?:resource_tracker|forkserver|semaphore_tracker)")


# A child


class Link(NamedTuple):
    """`process` waits for `child`, one of those `at_work`. `for_result`: for an answer it needs, not for its end or its
    output."""

    process: LivingProcess
    thread: LivingThread
    child: LivingProcess | None
    for_result: bool
    at_work: tuple[LivingProcess, ...] = ()


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
    links = (link_of(scene, process, thread) for thread in _waiters(scene, process))
    return next((link for link in links if link is not None), None)


def link_of(scene: Scene, process: LivingProcess, thread: LivingThread) -> Link | None:
    """Of one of its threads."""
    wait, living = thread.wait, list_workers(scene, process)
    if not living and not _zombies(scene, process):
        return None
    peers = [child for child in living if wait and child.pid in wait.peer_pids]
    files = [frame.file for frame in _frames_above_user(thread)]
    ends = awaits_end(thread)
    result = not ends and _needs_result(process, files)
    reads = wait is not None and READS.fullmatch(wait.syscall or "") is not None
    if ends or result or (peers and reads):
        at_work = _at_work(process, peers or ([] if reads and wait and wait.alone else living))
        return Link(process, thread, _pick(at_work), result, at_work)
    return None


def awaits_end(thread: LivingThread) -> bool:
    """It waits for the end of a child, or of several."""
    call = thread.wait.syscall if thread.wait else None
    files = (frame.file for frame in _frames_above_user(thread))
    return any(_END_FILES.search(file) for file in files) or _END_CALLS.fullmatch(call or "") is not None


def tell_awaited(link: Link, child: LivingProcess) -> bool | None:
    """Whether it is shown to be the one: at its end, at its output, or at work on a task; false: it is one of several
    that are. Null: whoever else has the writing end of a pipe may only have inherited it."""
    alone = len(link.at_work) == 1
    if link.for_result:
        main = main_thread(child)
        frames = python_frames(main) if main else ()
        return alone if any(WORKER_LOOP.search(f"{one.file}:{one.function}") for one in frames) else None
    pipe = _PIPE_NAME.search((link.thread.wait and link.thread.wait.target) or "")
    shown = not pipe or awaits_end(link.thread) or any(pipe[0] == output.path for output in child.outputs)
    return alone if shown else None


def list_workers(scene: Scene, process: LivingProcess) -> list[LivingProcess]:
    """Its living children, without the helpers of multiprocessing."""
    children = [child for child in scene.children(process) if not HELPER.search(" ".join(child.argv))]
    return [child for child in children if child.state != "Z" and child.ended is None]


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


def _at_work(parent: LivingProcess, children: list[LivingProcess]) -> tuple[LivingProcess, ...]:
    """Whoever waits for a task keeps nobody waiting, nor does who waits for the output of another one (`x | tee`)."""
    busy = tuple(child for child in children if not is_idle_worker(child) and not _listens_to(child, parent))
    return tuple(child for child in busy if not any(_listens_to(child, other) for other in busy)) or busy


def _pick(at_work: tuple[LivingProcess, ...]) -> LivingProcess | None:
    """One that stands still before one that moves or changes; a program in Python can be told more of."""

    def rank(child: LivingProcess) -> tuple[bool, bool, bool]:
        return any(map(moves, child.counters)), any(one.changed for one in child.threads), child.python is None

    return min(at_work, key=rank, default=None)


def _listens_to(child: LivingProcess, parent: LivingProcess) -> bool:
    """It waits for the word of the very process that waits for it: most often for the next task."""
    main = main_thread(child)
    wait = main.wait if main else None
    return wait is not None and READS.fullmatch(wait.syscall or "") is not None and parent.pid in wait.peer_pids


def is_idle_worker(process: LivingProcess) -> bool:
    main = main_thread(process)
    return main is not None and awaits_task(main)


def awaits_task(thread: LivingThread) -> bool:
    """Its loop waits for the next task: between the loop and the wait there is nothing but plumbing."""
    for frame in python_frames(thread):
        if WORKER_LOOP.search(f"{frame.file}:{frame.function}"):
            return True
        if not _WORKER_PLUMBING.search(frame.file):
            return False
    return False


def _judge_chain(scene: Scene, chain: list[Link]) -> Finding | None:
    """Waiting for somebody's end is no fault, whatever he does; waiting for an answer that cannot come is. Where it
    still may (a long task looks like an endless one) that he is stuck is only a guess, with whom to look at next."""
    if not chain:
        return None
    last = chain[-1]
    if last.child is None:
        return _nobody_at_work(scene, last) if last.for_result else None
    end, thread = last.child, _find_feeder(last.process, last.child) or _stuck_thread(scene, last.child)
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
    if wait is not None and tell_hopeless(end, thread, wait) is None:
        return None  # somebody may answer it
    busy = scene.is_busy(thread)
    doing = (
        "on CPU, slow or endless," if busy else f"waiting: {tell_target(wait)}," if wait else "asleep, slow or stuck,"
    )
    detail = f"{end.role} {end.pid} is {doing} {_in(thread)}"
    ground = Ground(f"{detail}; nothing changed for {scene.looked_s:.0f} s", stack_of(end, thread))
    if wait is not None:
        return Finding("established", end, thread, detail, (*told, ground))
    if any(moves(counter) and counter.tid in (thread.tid, None) for counter in end.counters):
        return None
    against = f"{end.pid} {'is on CPU' if busy else 'sleeps, and may wake up'}: it may only be slow"
    return Finding("hypothesis", end, thread, detail, (*told, ground), (against,))


def _in(thread: LivingThread) -> str:
    return f"in {tell_place(thread)}"


def _stuck_thread(scene: Scene, process: LivingProcess) -> LivingThread | None:
    """The one that works, else the main one."""
    busy = [thread for thread in process.threads if scene.is_busy(thread)]
    return max(busy, key=lambda thread: thread.cpu_s) if busy else main_thread(process)


def _find_feeder(parent: LivingProcess, child: LivingProcess) -> LivingThread | None:
    """A thread that the child's main one joins, and that writes to a pipe which nobody but these two could empty (a
    multiprocessing.Queue that is joined before it is drained)."""
    main = main_thread(child)
    if main is None or not joins_thread(main):
        return None
    for thread in child.threads:
        wait = thread.wait if thread is not main else None
        if wait is not None and WRITES.fullmatch(wait.syscall or "") and parent.pid in wait.peer_pids:
            return thread if {*wait.peer_pids} <= {parent.pid, child.pid} else None
    return None


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


class Outside(NamedTuple):
    """A thread that waits for something outside, and the chain from the target to its process."""

    process: LivingProcess
    thread: LivingThread
    wait: Wait
    chain: tuple[Link, ...]

    @property
    def ask(self) -> int | None:
        """Whom to look at next."""
        return next((pid for pid in self.wait.peer_pids if pid != self.process.pid), None)


def find_outside(scene: Scene) -> Outside | None:
    """Of the target, or of the process that it waits for."""
    if not scene.processes:
        return None
    chain = follow_chain(scene, scene.processes[0])
    end = (chain[-1].child or chain[-1].process) if chain else scene.processes[0]
    for thread in _waiters(scene, end) if not is_idle_worker(end) else ():
        wait = find_io(thread)
        if wait is not None and scene.stands_still(thread):
            return Outside(end, thread, wait, tuple(chain))
    return None


def find_blocked_io(scene: Scene) -> Finding | None:
    """Nobody is left who could end the wait: that nobody has done so yet is no fault."""
    found = find_outside(scene)
    if found is None or scene.rising:
        return None
    process, thread, wait, chain = found
    why = tell_hopeless(process, thread, wait)
    if why is None:
        return None
    ground = Ground(f"{name_thread(process, thread)} stays {_in(thread)}: {tell_target(wait)}; {why}", _call_of(found))
    links, culprit = map(_tell_link, chain), find_component_frame(thread.stack)
    detail, remedies = f"{tell_target(wait)}; {why}", (advise(wait, thread),)
    return Finding("established", process, thread, detail, (*links, ground), (), culprit, remedies, found.ask)


def _call_of(found: Outside) -> str:
    return f"/proc/{found.process.pid}/task/{found.thread.tid}/syscall"
