"""Do the tasks of an event loop wait for what can never come, or does one of them keep the loop from running? Pure.

A loop that sleeps without a timer, watches nothing but its own wake-up socket, and has no thread, child or signal
handler beside it never wakes again: that is proof. Anything less stays `waiting`, with the tasks in words. What the
tasks are is read in `capture`; who sets a plain future is never known, only whether anybody is left who could.
"""

from __future__ import annotations

import re

from harness.diagnose.frames import innermost_user_frame
from harness.diagnose.living.scene import Finding, Scene, stack_of
from harness.diagnose.living.tasks.task_words import (
    list_awaited,
    main_task,
    sleeps,
    tell_awaited,
    tell_chain,
    tell_task,
)
from harness.diagnose.living.thread_waits import python_frames, sleeps_for_own, tell_place
from harness.documents.verdict import Frame, Ground, Remedy
from harness.evidence.living.look import LivingProcess, LivingThread
from harness.evidence.living.tasks import AsyncTask, EventLoop

_LOOP_FILE = re.compile(r"/asyncio/(?:base_events|runners)\.py$")
_BLOCKED_KINDS = ("waiting", "busy-", "blocked-", "deadlock-", "stopped")
_REMEDIES = (
    Remedy(
        "Set each awaited future on every path, also when the work behind it fails; let no tasks await each other.",
        True,
        "a future has no time limit, and a task that waits for one tells nobody",
    ),
    Remedy(
        "Give waits a limit: async with asyncio.timeout(…), or asyncio.wait_for().",
        True,
        "it ends the wait with an error",
    ),
)


# Tasks that nobody can wake


def find_task_deadlock(scene: Scene) -> Finding | None:
    for process in scene.processes:
        if process.tasks is not None and process.tasks.tasks:
            found = _task_ring(scene, process) or _dead_loop(scene, process)
            if found is not None:
                return found
    return None


def _task_ring(scene: Scene, process: LivingProcess) -> Finding | None:
    """Each awaits the next one itself. What could end it is that somebody cancels one of them."""
    ring = find_task_ring(_tasks(process))
    if not ring or any(_has_limit(task) for task in ring):
        return None
    loop, thread = _only_loop(process)
    timed = loop is None or loop.timed is not False
    names = [f"`{task.name}`" for task in ring]
    detail = f"tasks await each other: {' → '.join([*names, names[0]])}"
    if len(ring) == 1:
        detail = f"task {names[0]} awaits itself"
    grounds = tuple(Ground(f"{tell_task(task)} {_tell_next(process, task)}", _source(process)) for task in ring)
    against = ("a timer or another task could still cancel one of them",) if timed else ()
    status = "supported" if timed else "established"
    return Finding(status, process, thread, detail, grounds, against, remedies=_REMEDIES)  # type: ignore[arg-type]


def find_task_ring(tasks: tuple[AsyncTask, ...]) -> list[AsyncTask]:
    """The first ring of tasks of which each awaits the next itself; empty if there is none."""
    by_address = {task.address: task for task in tasks if task.count == 1}
    done: set[str] = set()
    for task in by_address.values():
        path: list[AsyncTask] = []
        while task.address not in done:
            done.add(task.address)
            path.append(task)
            after = by_address.get(task.tasks[0]) if task.direct and task.tasks else None
            if after is None:
                break
            if after in path:
                return path[path.index(after) :]
            task = after
    return []


def _has_limit(task: AsyncTask) -> bool:
    return task.limited or any(frame.function in ("wait_for", "timeout") for frame in task.frames)


def _tell_next(process: LivingProcess, task: AsyncTask) -> str:
    return tell_awaited(task, {one.address: one for one in _tasks(process)})


def _dead_loop(scene: Scene, process: LivingProcess) -> Finding | None:
    """Everything that could wake it is ruled out, one by one."""
    loop, thread = _only_loop(process)
    if loop is None or thread is None or not loop.watched or not _never_wakes(scene, process, loop, thread):
        return None
    tasks = _tasks(process)
    first = main_task(tasks)
    detail = f"{tell_chain(first, tasks)}; nothing is left that could wake the loop in {tell_place(thread)}"
    grounds = (
        Ground(
            f"the event loop sleeps without a timer and watches no descriptor but its own, fd {loop.watched[0]}",
            "epoll",
        ),
        Ground(f"{_count(tasks)}, and none of them is ready to run or sleeps", _source(process)),
        Ground(
            f"{_tell_others(process)}, there is no child, and no handler of a signal could wake it",
            f"threads of {process.pid}",
        ),
    )
    return Finding("established", process, thread, detail, grounds, remedies=_REMEDIES)


def _never_wakes(scene: Scene, process: LivingProcess, loop: EventLoop, thread: LivingThread) -> bool:
    tasks = process.tasks
    return bool(
        tasks is not None
        and tasks.complete
        and loop.timed is False
        and loop.watched is not None
        and len(loop.watched) == 1
        and scene.stands_still(thread)
        and not scene.rising
        and _is_in_select(thread)
        and all(task.state == "waiting" and task.ends_in_s is None for task in tasks.tasks)
        and process.rest is not None
        and process.rest.handled_signals == ()
        and (process.rest.together or len(process.threads) == 1)
        and all(other is thread or _is_out_of_play(scene, other) for other in process.threads)
        and not process.children
        and not scene.children(process)
    )


def _tell_others(process: LivingProcess) -> str:
    others = len(process.threads) - 1
    who = "the other thread waits" if others == 1 else f"all {others} other threads wait"
    return f"{who} for a thread of the process" if others else "it has one thread"


def _is_in_select(thread: LivingThread) -> bool:
    """In the select() of asyncio's own loop, which always watches a socket to be woken by."""
    frames = python_frames(thread)[:2]
    return [frame.file.rpartition("/")[2] for frame in frames] == ["selectors.py", "base_events.py"]


def _is_out_of_play(scene: Scene, thread: LivingThread) -> bool:
    """It waits without a limit for another thread of the process: an idle worker of a pool, one of OpenBLAS's."""
    return scene.stands_still(thread) and sleeps_for_own(thread)


# Whose progress


def credit_beside_tasks(process: LivingProcess, thread: LivingThread) -> bool | None:
    """Whether what a loop's thread moves is its main task's, the one that the loop runs until it is done.

    False: all others slept, or may have, while whatever the main task awaits goes on. Null: that is not shown. It
    sleeps, it stands, or no task is the main one.
    """
    if not _runs_loop(process, thread):
        return True
    tasks = {task.address: task for task in _tasks(process)}
    if not tasks or len(_loops(process)) != 1:
        return None
    first = main_task(tuple(tasks.values()))
    line = list_awaited(first, tasks)
    blocking = find_blocking(process, thread)
    if isinstance(blocking, AsyncTask):
        return True if blocking in line or not first.main else None
    chain = len(line) == len(tasks) and all(task.count == 1 and len(task.tasks) < 2 for task in line)
    if chain and (not _loops(process)[0].timed or any(_has_limit(task) or sleeps(task) for task in line)):
        return True
    acting = [task for task in tasks.values() if not any(address in tasks for address in task.tasks)]
    leaves = [task for task in acting if task in line]
    wrote = [task for task in acting if not _is_quiet(task)]
    alone = len(wrote) == 1 and wrote[0] in leaves and bool(wrote[0].moved)
    return False if first.main and leaves and (alone or all(map(_goes_on, leaves))) else None


def _runs_loop(process: LivingProcess, thread: LivingThread) -> bool:
    on_stack = any(_LOOP_FILE.search(frame.file) for frame in python_frames(thread))
    return on_stack or any(loop.tid == thread.tid for loop in _loops(process))


def _is_quiet(task: AsyncTask) -> bool:
    """In one and the same sleep all the time."""
    return task.moved is False and task.ends_in_s is not None


def _goes_on(task: AsyncTask) -> bool:
    """What it awaited has come, and it awaits again, without a limit. Who sleeps may only ask again and again."""
    return bool(task.moved) and task.state == "waiting" and not sleeps(task) and not _has_limit(task)


# A loop that does not get to run


def add_tasks(scene: Scene, kind: str, finding: Finding) -> Finding:
    """What the loop's tasks have to do with what was found; nothing where no loop stands behind it."""
    process, thread = finding.process, finding.thread
    tasks = _tasks(process)
    if thread is None or not tasks or not kind.startswith(_BLOCKED_KINDS) or kind == "stopped":
        return finding
    if found := find_blocking(process, thread):
        return _tell_blocking(process, finding, found)
    loop = next((loop for loop in _loops(process) if loop.tid in (thread.tid, process.pid)), None)
    if kind != "waiting" or loop is None or loop.watched is None:
        return finding
    chain = tell_chain(main_task(tasks), tasks)
    ground = Ground(f"{_count(tasks)}; {chain}", _source(process))
    detail = _tell_idle(finding.detail, loop, thread) if loop.tid == thread.tid else finding.detail
    return finding._replace(detail=f"{chain}; {detail}", grounds=(*finding.grounds, ground))


def find_blocking(process: LivingProcess, thread: LivingThread) -> AsyncTask | str | None:
    """The task whose code keeps this loop's thread, or in words that a callback does; null: the loop is idle."""
    frames = python_frames(thread)
    at = next((at for at, frame in enumerate(frames) if frame.file.endswith("/asyncio/base_events.py")), 0)
    inner = frames[:at]
    if not at or frames[at].function != "_run_once" or inner[-1].file.endswith("selectors.py"):
        return None
    running = [task for task in _tasks(process) if task.state == "running" and task.frames]
    here = [task for task in running if any(_is_at(task, frame) for frame in inner)]
    return here[0] if len(here) == 1 else "a callback" if not running else None


def _is_at(task: AsyncTask, frame: Frame) -> bool:
    outermost = task.frames[-1]
    return (outermost.file, outermost.function) == (frame.file, frame.function)


def _tell_blocking(process: LivingProcess, finding: Finding, found: AsyncTask | str) -> Finding:
    thread = finding.thread
    assert thread is not None
    others = sum(task.count for task in _tasks(process) if task is not found)
    who = found if isinstance(found, str) else f"task `{found.name}`"
    waits = f", {others} other task{'s' * (others != 1)} cannot run" if others else ""
    said = f"the event loop is blocked by {who}{waits}"
    ground = Ground(f"{said}: {who} has called {tell_place(thread)} and does not await", stack_of(process, thread))
    return finding._replace(detail=f"{finding.detail}; {said}", grounds=(*finding.grounds, ground))


def _tell_idle(detail: str, loop: EventLoop, thread: LivingThread) -> str:
    """The socket by which a loop wakes itself is noise."""
    if loop.watched is None or len(loop.watched) != 1 or not _is_in_select(thread):
        return detail
    frame = innermost_user_frame(python_frames(thread))
    for_what = "its timers" if loop.timed else "a thread or a signal to wake it"
    return f"the event loop waits for {for_what}{f', in {frame.place}' if frame else ''}"


def _tasks(process: LivingProcess) -> tuple[AsyncTask, ...]:
    return process.tasks.tasks if process.tasks else ()


def _loops(process: LivingProcess) -> tuple[EventLoop, ...]:
    return process.tasks.loops if process.tasks else ()


def _only_loop(process: LivingProcess) -> tuple[EventLoop | None, LivingThread | None]:
    loops = _loops(process)
    if len(loops) != 1:
        return None, None
    return loops[0], next((thread for thread in process.threads if thread.tid == loops[0].tid), None)


def _count(tasks: tuple[AsyncTask, ...]) -> str:
    count = sum(task.count for task in tasks)
    return f"{count:,} task{'s' * (count != 1)} not done"


def _source(process: LivingProcess) -> str:
    return f"memory of {process.pid}"
