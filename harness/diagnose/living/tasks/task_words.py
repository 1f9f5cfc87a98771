"""What asyncio tasks wait for, in words: one task, a chain of them, a whole tree. Judges nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.diagnose.frames import innermost_user_frame, list_python_frames
from harness.evidence.living.tasks import AsyncTask

_MOST_LINES, _DEEPEST = 100, 40
_MOST_LINKS = 6
# By the class in whose method it awaits, and the method; else by the class alone.
_THROUGH = {
    ("Queue", "get"): "an item of a Queue",
    ("Queue", "put"): "room in a Queue",
    ("Queue", "join"): "the join() of a Queue",
    ("TaskGroup", ""): "the tasks of its TaskGroup",
    ("Condition", "wait"): "a Condition",
    ("Event", ""): "an Event",
    ("Lock", ""): "a Lock",
    ("Semaphore", ""): "a Semaphore",
    ("BoundedSemaphore", ""): "a Semaphore",
    ("Barrier", ""): "a Barrier",
    ("StreamReader", ""): "data of a StreamReader",
    ("FlowControlMixin", ""): "room to write",
}
_QUEUES = ("PriorityQueue", "LifoQueue")
_FUTURES = {"Future": "a future", "_GatheringFuture": "gather()"}


def tell_task(task: AsyncTask) -> str:
    """ "task `load` in fetch (x.py:3)" """
    return f"task `{task.name}` in {tell_task_place(task)}"


def tell_task_place(task: AsyncTask) -> str:
    """The user's line if there is one, else the innermost."""
    frames = list_python_frames(task.frames)
    return (innermost_user_frame(frames) or frames[0]).place if frames else "a coroutine that could not be read"


def tell_awaited(task: AsyncTask, tasks: Mapping[str, AsyncTask]) -> str:
    """ "awaits task `load`" """
    if task.state != "waiting":
        return {"running": "runs", "ready": "waits for its turn", "new": "has not begun"}[task.state]
    if task.ends_in_s is not None:
        return f"sleeps, {task.ends_in_s:.0f} s are left"
    if sleeps(task):
        return "sleeps"
    known = [tasks[address] for address in task.tasks if address in tasks]
    if known:
        count = sum(one.count for one in known)
        return f"awaits task `{known[0].name}`" if count == 1 else f"awaits {count} tasks, one is `{known[0].name}`"
    return f"awaits {_tell_future(task)}"


def _tell_future(task: AsyncTask) -> str:
    through = "Queue" if task.through in _QUEUES else task.through or ""
    function = (task.frames[0].function or "") if task.frames else ""
    told = _THROUGH.get((through, function)) or _THROUGH.get((through, ""))
    return told or _FUTURES.get(task.awaits or "", f"a {task.awaits}" if task.awaits else "something unknown")


def sleeps(task: AsyncTask) -> bool:
    """In asyncio.sleep(), whether or not it is known for how long."""
    frame = task.frames[0] if task.frames else None
    named = frame is not None and frame.function == "sleep" and (frame.file or "").endswith("/asyncio/tasks.py")
    return named or task.ends_in_s is not None


def main_task(tasks: Sequence[AsyncTask]) -> AsyncTask:
    """The one that asyncio.run() began with. Where none is known, nobody awaits it, it cannot end by itself, and it is
    the first by name."""
    woken = list_woken(tasks)
    roots = [task for task in tasks if task.address not in woken] or list(tasks)
    return min(
        roots, key=lambda task: (not task.main, _ends_itself(task), task.name != "Task-1", len(task.name), task.name)
    )


def _ends_itself(task: AsyncTask) -> bool:
    return sleeps(task) or task.state != "waiting"


def list_awaited(first: AsyncTask, tasks: Mapping[str, AsyncTask]) -> list[AsyncTask]:
    """The task, those that it awaits, and those that they await."""
    found = [first]
    for task in found:
        found += [one for address in task.tasks if (one := tasks.get(address)) and one not in found]
    return found


def list_woken(tasks: Sequence[AsyncTask]) -> set[str]:
    """The addresses of those that others wait for."""
    return {address for task in tasks for address in task.tasks}


def tell_chain(first: AsyncTask, tasks: Sequence[AsyncTask]) -> str:
    """ "task `main` in run (x.py:9) awaits task `load` in fetch (x.py:3), which awaits a future" """
    by_address = {task.address: task for task in tasks}
    words, seen, task = tell_task(first), {first.address}, first
    for _ in range(_MOST_LINKS):
        after = _choose_next(task, by_address)
        if after is None or after.address in seen:
            break
        several = len(task.tasks) > 1 or after.count > 1
        who = (
            f"{sum(by_address[one].count for one in task.tasks if one in by_address)} tasks, one is" if several else ""
        )
        words += f" awaits {who} {tell_task(after)}," if several else f" awaits {tell_task(after)},"
        words += " which"
        seen.add(after.address)
        task = after
    return f"{words} {tell_awaited(task, by_address)}"


def _choose_next(task: AsyncTask, tasks: Mapping[str, AsyncTask]) -> AsyncTask | None:
    """Of several the one that cannot end by itself."""
    known = [tasks[address] for address in task.tasks if address in tasks]
    return min(known, key=lambda one: (one.ends_in_s is not None, one.state != "waiting"), default=None)


def draw_tasks(tasks: Sequence[AsyncTask]) -> tuple[str, ...]:
    """A line each, those below that they wait for; what stands alike shares a line."""
    by_address = {task.address: task for task in tasks}
    woken = list_woken(tasks)
    first = main_task(tasks) if tasks else None
    roots = sorted((task for task in tasks if task.address not in woken), key=lambda task: task is not first)
    drawn: set[str] = set()
    lines = list(_draw(roots, by_address, 0, drawn))
    rings = [task for task in tasks if task.address not in drawn]
    lines += _draw(rings, by_address, 0, drawn)
    return tuple(lines[:_MOST_LINES])


def _draw(tasks: Sequence[AsyncTask], known: Mapping[str, AsyncTask], depth: int, drawn: set[str]) -> Iterator[str]:
    groups: dict[tuple[str, str, tuple[str, ...]], list[AsyncTask]] = {}
    for task in tasks:
        below = tuple(address for address in task.tasks if address in known)
        said = "sleeps" if task.ends_in_s is not None else tell_awaited(task, known)
        groups.setdefault((tell_task_place(task), said, below), []).append(task)
    for (place, said, below), alike in groups.items():
        if all(task.address in drawn for task in alike):
            continue
        drawn |= {task.address for task in alike}
        count = sum(task.count for task in alike)
        if count > 1:
            yield f"{'  ' * depth}{count:,} tasks, one is `{alike[0].name}`, in {place}: {said}"
        else:
            yield f"{'  ' * depth}`{alike[0].name}` in {place}: {tell_awaited(alike[0], known)}"
        if depth < _DEEPEST:
            yield from _draw([known[address] for address in below], known, depth + 1, drawn)
