"""Which threads are the line of work of a target, and what of all that rises did they move?

The line starts at the main thread and goes on to whom it is shown to wait for: a thread that it joins, the workers of
its pool, a child, the ranks below a launcher. A heartbeat, a metrics thread or a launcher's own traffic is not on it.
Pure; what a standstill means is decided in `alive`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from harness.diagnose.living.blocked import find_in_collective, split_ranks
from harness.diagnose.living.blocked_child import awaits_end, awaits_task, link_of, list_workers, tell_awaited
from harness.diagnose.living.locks.abandoned import SENT_TO_END
from harness.diagnose.living.scene import Key, Scene, Step, moves
from harness.diagnose.living.tasks.asyncio_tasks import credit_beside_tasks
from harness.diagnose.living.thread_waits import (
    find_holders,
    find_io,
    joins_thread,
    lock_wanted,
    main_thread,
    name_thread,
    owner_wanted,
    python_frames,
    sleeps_for_own,
    thread_end_wanted,
    waits_for_import,
)
from harness.diagnose.living.wait_advice import is_sleeping, sleeps_again
from harness.documents.verdict import Frame
from harness.evidence.living.look import BY_ENDED, FAILED, Counter, LivingProcess, LivingThread, Look

_FUTURES = re.compile(r"/concurrent/futures/|/asyncio/(?:base_events|runners)\.py$")
_FUTURE_WORKER = re.compile(r"/concurrent/futures/thread\.py$")
_POOL = re.compile(r"/multiprocessing/pool\.py$")
_LAUNCHERS = re.compile(r"/(?:xdist|execnet|gunicorn|ray|jupyter_client|jupyter_server|torch/distributed)/")
_ENDLESS_READS = re.compile(r"p?readv?(?:64|2)?|recv(?:from|msg|mmsg)")
_POLLS = re.compile(r"(?:clock_)?nanosleep|pause|rt_sig\w+")
_READ = "bytes read"
_TIMERS = frozenset({"SIGALRM", "SIGVTALRM", "SIGPROF"})
# Whoever of the process has moved it, the process says it for all of them.
_OF_ALL = ("beat", "child", "device")
_MOST_OTHERS = 3
_ASIDE = "beside the line of work, as it looks in a handler of a signal, or in a task that is not awaited"


class _Credit(NamedTuple):
    """What the steps `of` the line are taken to have moved. `proven` false: others may have, while the line went on."""

    process: LivingProcess
    counter: Counter
    proven: bool
    of: list[Step]


def open_scene(look: Look, pid: int | None = None) -> Scene:
    """The scene with its line of work, and with what that moves."""
    scene = Scene(look, pid)
    scene.line = follow_line(scene)
    seen = {id(process) for process in scene.processes}
    ranks = {id(step.process): step.process for step in scene.line if id(step.process) not in seen}
    beyond = [(rank, counter) for rank in ranks.values() for counter in rank.counters if moves(counter)]
    credits = [_credit(scene, process, counter) for process, counter in [*scene.stirring, *beyond]]
    credited = [credit for credit in credits if credit is not None]
    in_doubt = {choice[0] for choice in _list_standing(scene, credited)}
    for one in credited:
        if in_doubt.isdisjoint(_list_waiters(one)):
            scene.rising.append((one.process, one.counter))
            scene.doubted += [] if one.proven else [one.counter]
    return scene


def _list_standing(scene: Scene, credited: list[_Credit]) -> set[tuple[Key, Key]]:
    """Of several that somebody can wait for those that neither move nor write, nor anybody that they wait for."""
    acting = {step.key for credit in credited for step in credit.of}
    acting |= {step.key for step in scene.line if not _stands(scene, step)}
    choices = {choice for step in scene.line for choice in step.choices}
    return {choice for choice in choices if acting.isdisjoint(_list_reached(scene, choice[1]))}


def _list_reached(scene: Scene, key: Key) -> list[Key]:
    """That step of the line, and those that it waits for."""
    after = {step.key: step.after for step in scene.line}
    found = [key]
    for one in found:
        found += [other for other in after.get(one, ()) if other not in found]
    return found


def _stands(scene: Scene, step: Step) -> bool:
    return step.thread is not None and scene.stands_still(step.thread)


def _list_waiters(credit: _Credit) -> Iterator[Key]:
    """Who had to choose, for this to be the line's. Of a process whose children finish, it may be any of them."""
    for step in credit.of:
        yield from (waiter for waiter, _ in step.choices)
        if credit.counter.kind == "child":
            yield step.key


# Who is on it


def follow_line(scene: Scene) -> tuple[Step, ...]:
    """From the main thread on, breadth first."""
    target = scene.processes[0]
    waiting, line = [Step(target, main_thread(target), "the target")], list[Step]()
    while waiting:
        step = waiting.pop(0)
        if any((step.process, step.thread) == (other.process, other.thread) for other in line):
            continue
        after = list(_list_awaited(scene, step)) if step.thread else []
        launches = any(other.process is not step.process and other.launches for other in after)
        line.append(step._replace(launches=launches, after=tuple(other.key for other in after)))
        waiting += [_continue(step, other) for other in after]
    return tuple(line)


def _continue(step: Step, after: Step) -> Step:
    proven = None if None in (step.proven, after.proven) else bool(step.proven and after.proven)
    choices = step.choices if after.proven else (*step.choices, (step.key, after.key))
    return after._replace(proven=proven, launches=False, choices=choices)


def _list_awaited(scene: Scene, step: Step) -> Iterator[Step]:
    """Whom it waits for. `launches` of what is yielded: the waiting one waits for its end."""
    process, thread = step.process, step.thread
    if thread is not None and find_in_collective(process) is thread:
        yield from (Step(rank, main_thread(rank), f"rank {rank.rank or rank.pid}") for rank in split_ranks(scene)[1])
        return
    if thread is None or scene.is_busy(thread):
        return
    threads = list(_awaited_threads(process, thread))
    yield from threads
    link = link_of(scene, process, thread)
    if link is not None:
        launches = not link.for_result and not _reads_socket(thread)
        for child in link.at_work:
            why = f"{'the answer' if link.for_result else 'the end or the output'} of process {child.pid}"
            proven = tell_awaited(link, child)
            yield Step(child, main_thread(child), why, proven, launches=launches and _is_python(child))
    elif not threads and _polls(thread):
        for child in filter(_is_python, list_workers(scene, process)):
            yield Step(child, main_thread(child), f"process {child.pid}, as it looks", proven=False, launches=True)


def _reads_socket(thread: LivingThread) -> bool:
    """It reads answers, for itself; who reads the pipe that is a child's output passes on what that one says."""
    wait = find_io(thread)
    return wait is not None and "pipe:[" not in (wait.target or "")


def _is_python(process: LivingProcess) -> bool:
    return process.python is not None


def _polls(thread: LivingThread) -> bool:
    """It sleeps again and again and asks after its children in between, or stands in a launcher.

    Where its source could not be read it may do so.
    """
    sleeps = thread.wait is not None and _POLLS.fullmatch(thread.wait.syscall or "") and not is_sleeping(thread)
    return bool(sleeps and thread.tends is not False) or any(
        _LAUNCHERS.search(frame.file) for frame in python_frames(thread)
    )


def _awaited_threads(process: LivingProcess, thread: LivingThread) -> Iterator[Step]:
    others = [other for other in process.threads if other is not thread and python_frames(other)]
    if joins_thread(thread) or is_exiting(thread):
        yield from _joined(process, thread, others)
    elif ended := thread_end_wanted(thread):
        named = [other for other in process.threads if other.tid == ended]
        yield from (Step(process, other, f"the end of {name_thread(process, other)}") for other in named)
    elif waits_for_import(thread):
        owner = owner_wanted(thread, "import")
        yield from (Step(process, other, "the import of a module") for other in others if other.tid == owner)
    elif lock := lock_wanted(thread):
        for holder in find_holders(process, lock):
            if holder.thread is not None and holder.thread is not thread:
                yield Step(process, holder.thread, lock.expression, proven=not holder.inferred)
    else:
        workers = _list_pool(thread, others)
        yield from (Step(process, one, "a task of its pool", proven=len(workers) == 1) for one in workers)


def is_exiting(thread: LivingThread) -> bool:
    """The program has ended: the interpreter waits for the threads that are not daemons."""
    frames = python_frames(thread)[:3]
    return any(frame.file.endswith("/threading.py") and frame.function == "_shutdown" for frame in frames)


def _joined(process: LivingProcess, thread: LivingThread, others: list[LivingThread]) -> Iterator[Step]:
    """By the owner that was read, else the only other one. At exit any that is there may be the one."""
    owner = owner_wanted(thread, "join")
    named = [other for other in others if other.tid == owner]
    if owner is None:
        named = others if len(others) == 1 or is_exiting(thread) else []
    for other in named:
        yield Step(process, other, f"the end of {name_thread(process, other)}", proven=len(named) == 1)


def _list_pool(thread: LivingThread, others: list[LivingThread]) -> list[LivingThread]:
    """The threads at work in pools of the kind that it waits for, also in a task of its own pool."""
    tasks = itertools.takewhile(lambda frame: not _begins_task(frame), python_frames(thread))
    files = [frame.file for frame in tasks]
    if any(_FUTURES.search(file) for file in files):
        return [other for other in others if _runs(other, _FUTURE_WORKER, "run")]
    if any(_POOL.search(file) for file in files):
        return [other for other in others if _runs(other, _POOL, "worker") and not awaits_task(other)]
    return []


def _begins_task(frame: Frame) -> bool:
    files = {"run": _FUTURE_WORKER, "_worker": _FUTURE_WORKER, "worker": _POOL}
    return frame.function in files and files[frame.function].search(frame.file) is not None


def _runs(thread: LivingThread, file: re.Pattern[str], function: str) -> bool:
    return any(frame.function == function and file.search(frame.file) for frame in python_frames(thread))


# What it moves


def _credit(scene: Scene, process: LivingProcess, counter: Counter) -> _Credit | None:
    """Null: it is not credited."""
    steps = [step for step in scene.line if step.process is process and step.proven is not None]
    if not steps or counter.kind == "ended" or (counter.kind == "io" and counter.name.startswith(_READ)):
        return None
    if counter.kind == "child" and not _may_await_children(scene, steps):
        return None
    own = [step for step in steps if step.thread and step.thread.tid == counter.tid]
    of = own or [min(steps, key=lambda step: len(step.choices))]
    proven = _ask_who(scene, process, counter, steps, own)
    return None if proven is None else _Credit(process, counter, proven and any(step.proven for step in of), of)


def _ask_who(scene: Scene, process: LivingProcess, counter: Counter, steps: list[Step], own: list[Step]) -> bool | None:
    """Whether the line alone can have moved it. Null: somebody beside it may have, and that it goes on is not shown."""
    if counter.kind in _OF_ALL:
        return True
    if any(step.launches for step in steps) or _only_restarts(scene, process, steps):
        return None
    if process.python is None or any(step.thread is None for step in steps):
        return True
    on_line = [step.thread for step in steps if step.thread]
    if own:
        return _credit_thread(process, next(thread for thread in on_line if thread.tid == counter.tid))
    return _credit_unknown(scene, process, counter, on_line)


def _credit_thread(process: LivingProcess, thread: LivingThread) -> bool | None:
    """What a thread does for others than whoever waits for it: the handlers of signals, and the tasks of a loop."""
    verdicts = (_credit_beside_handlers(process, thread), credit_beside_tasks(process, thread))
    return None if None in verdicts else all(verdicts)


def _credit_beside_handlers(process: LivingProcess, thread: LivingThread) -> bool | None:
    """Python's run on its main thread, wherever that stands, and one may be called time and again. Of an interval
    timer's not even movement of the thread shows who wrote, only that it goes on."""
    handled = process.rest.handled_signals if process.rest else ()
    if thread.tid != process.pid or handled == ():
        return True
    if handled is None or not _TIMERS.isdisjoint(handled):
        return False if _goes_on(thread) else None
    if sleeps_again(thread) or thread.moved:
        return True
    return False if SENT_TO_END.issuperset(handled) else None


def _goes_on(thread: LivingThread) -> bool:
    """It was at several places, and stands in a wait without a limit: what it waited for before has come. Who sleeps,
    or asks again and again with a limit, was there too."""
    reads = thread.wait is not None and _ENDLESS_READS.fullmatch(thread.wait.syscall or "") is not None
    return bool(thread.moved) and (sleeps_for_own(thread) or reads)


def _only_restarts(scene: Scene, process: LivingProcess, steps: list[Step]) -> bool:
    """Its children fail one after the other, none does well, and it rests in between: what it writes is about them."""
    rising = [counter for counter in process.counters if moves(counter)]
    fails = any(counter.name == FAILED for counter in rising) and all(counter.kind != "child" for counter in rising)
    return fails and not any(step.thread and scene.is_busy(step.thread) for step in steps)


def _may_await_children(scene: Scene, steps: list[Step]) -> bool:
    """Not where each of its threads stands in another wait: then a thread beside them has started those children."""
    return any(
        step.launches or step.thread is None or not scene.stands_still(step.thread) or awaits_end(step.thread)
        for step in steps
    )


def _credit_unknown(scene: Scene, process: LivingProcess, counter: Counter, on_line: list[LivingThread]) -> bool | None:
    """What no thread of the line is seen to move: another thread did, or one that has ended, or nobody saw who."""
    if any(thread.tid == counter.tid for thread in process.threads):
        return None
    by_ended = counter.name.endswith(BY_ENDED) or counter.tid is not None
    others = (one for one in process.threads if python_frames(one) and one not in on_line)
    if by_ended or process.fleeting_threads or any(_may_act(scene, one) for one in others):
        return False if any(map(_goes_on, on_line)) else None
    credits = [_credit_thread(process, thread) for thread in on_line]
    return None if all(credit is None for credit in credits) else all(credits)


def _may_act(scene: Scene, thread: LivingThread) -> bool:
    """Not who stood all the time in a wait that only another thread could have ended."""
    return bool(thread.moved) or not scene.stands_still(thread) or not sleeps_for_own(thread)


# What others move


def list_others(scene: Scene) -> list[tuple[LivingProcess, Counter]]:
    """What rises, and is not the line's."""
    return [item for item in scene.stirring if not any(item[1] is counter for _, counter in scene.rising)]


def stirs_beside(look: Look, pid: int | None = None) -> bool:
    """Whether a process below the target moves that is shown not to be on its line."""
    scene = open_scene(look, pid)
    return any(
        process is not scene.processes[0] and counter.tid in (process.pid, None) and not counter.name.startswith(_READ)
        for process, counter in list_others(scene)
        if counter.kind in ("io", "file", "beat")
    )


def tell_others(scene: Scene) -> list[str]:
    """ "thread stats moves (bytes written +120), beside the line of work" """
    told: dict[tuple[str, str], list[str]] = {}
    for process, counter in list_others(scene):
        risen = counter.values[-1] - counter.values[0]
        how = _ASIDE if _moves_aside(scene, process, counter) else "beside the line of work"
        told.setdefault((_name_mover(scene, process, counter), how), []).append(f"{counter.name} +{risen:,}")
    return [f"{who} moves ({', '.join(what[:_MOST_OTHERS])}), {how}" for (who, how), what in told.items()]


def _moves_aside(scene: Scene, process: LivingProcess, counter: Counter) -> bool:
    """A thread of the line did, and not for it."""
    own = (step.thread for step in scene.line if step.thread and step.key[1] == counter.tid and not step.launches)
    unlike = counter.kind == "ended" or counter.name.startswith(_READ)
    return not unlike and any(_credit_thread(process, thread) is None for thread in own)


def _name_mover(scene: Scene, process: LivingProcess, counter: Counter) -> str:
    thread = next((thread for thread in process.threads if thread.tid == counter.tid), None)
    whose = f" of process {process.pid}" if process is not scene.processes[0] else ""
    if thread is None:
        return f"process {process.pid}"
    return f"{'thread ' * (thread.tid != process.pid)}{name_thread(process, thread)}{whose}"


def list_path(scene: Scene, process: LivingProcess) -> list[LivingThread]:
    """The threads of one process, each shown to wait for the next."""
    return [step.thread for step in scene.line if step.process is process and step.thread and step.proven]
