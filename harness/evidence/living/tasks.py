"""What was seen of asyncio in a process: its pending tasks, where each stands, what it awaits; what its loops wait for.

Facts only; who could wake whom is for others to say. Addresses are "0x…" strings, frames start with the innermost.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from harness.evidence.crash import CrashFrame

# new: not begun; ready: it waits for nothing but its turn; running: its coroutine is on a thread's stack.
TaskState = Literal["new", "ready", "running", "waiting"]


class AsyncTask(Struct, frozen=True):
    """A task that is not done. `frames`: of its coroutines, from the innermost await to the outermost.

    `awaits`: the type of the future it waits for; `through`: whose method it waits in (Event, Queue, TaskGroup), by the
    type of `self`. `tasks`: the addresses of the tasks that will wake it, `direct`: it awaits that task itself.
    `ends_in_s`: when a sleep ends. `count`: so many tasks stand alike, and this is one of them.
    `main`: run_until_complete() waits for it, as asyncio.run() does. `limited`: it is inside an asyncio.timeout().
    `moved`: it stood elsewhere at an earlier moment of the look, or had other variables, or was not there. Null: tasks
    were read once only.
    """

    name: str
    address: str
    state: TaskState
    frames: tuple[CrashFrame, ...]
    awaits: str | None = None
    through: str | None = None
    tasks: tuple[str, ...] = ()
    direct: bool = False
    ends_in_s: float | None = None
    count: int = 1
    main: bool = False
    limited: bool = False
    moved: bool | None = None


class EventLoop(Struct, frozen=True):
    """A thread that waits in a loop's epoll. `watched`: which descriptors, the loop's own wake-up socket among them.

    `timed`: it will wake by itself, because something is scheduled. Null where that could not be read.
    """

    tid: int
    watched: tuple[int, ...] | None = None
    timed: bool | None = None


class Tasks(Struct, frozen=True):
    """`complete`: all that are not done are here, as they were at one moment."""

    tasks: tuple[AsyncTask, ...]
    loops: tuple[EventLoop, ...]
    complete: bool
