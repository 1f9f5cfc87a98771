"""What asyncio tasks prove and what they only suggest: the rules, on looks as capture would take them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from harness.diagnose.living.document import judge_living
from harness.diagnose.living.tasks.task_words import draw_tasks, tell_chain
from harness.documents.verdict import Document
from harness.evidence.crash import CrashFrame
from harness.evidence.living.look import LivingProcess, LivingThread, Rest, Wait
from harness.evidence.living.tasks import AsyncTask, EventLoop, Tasks
from harness.report.text import render
from tests.builders.crashes import LIBC, native, python
from tests.builders.looks import (
    EVALUATE,
    SEM_TIMED,
    SEM_WAIT,
    STDLIB,
    busy,
    counter,
    judge,
    line,
    look,
    process,
    thread,
)

RUN_ONCE = python("_run_once", f"{STDLIB}/asyncio/base_events.py", 1922)
RUN = python("run", f"{STDLIB}/asyncio/runners.py", 190)
RUN_CALLBACK = python("_run", f"{STDLIB}/asyncio/events.py", 80)
IN_SELECT = native("epoll_wait", LIBC), python("select", f"{STDLIB}/selectors.py", 468), RUN_ONCE, RUN, line("main", 40)
EPOLL = Wait("epoll_wait", target="waits for nothing from outside", fd=3)
WORKER = (*SEM_WAIT, python("_worker", f"{STDLIB}/concurrent/futures/thread.py", 81))
LOOP = EventLoop(100, (4,), False)


def job(*threads: LivingThread, **facts: Any) -> LivingProcess:
    """All seen at one moment, without handlers of signals."""
    return process(*threads, **{"rest": Rest(True, ()), **facts})


def idle(**facts: Any) -> LivingThread:
    return thread(100, *IN_SELECT, **{"wait": EPOLL, **facts})


def task(name: str, *frames: CrashFrame, **facts: Any) -> AsyncTask:
    values: dict[str, Any] = {"address": f"0x{name}", "state": "waiting", "awaits": "Future", **facts}
    return AsyncTask(name=name, frames=frames or (line(f"do_{name}", 7),), **values)


def tasks(*some: AsyncTask, loop: EventLoop = LOOP, **facts: Any) -> Tasks:
    return Tasks(some, (loop,), **{"complete": True, **facts})


MAIN = task("Task-1", tasks=("0xload",), direct=True, awaits="Task")
LOAD = task("load")
NEVER = tasks(MAIN, LOAD)


def kind(found: Document) -> tuple[str, str]:
    return found.verdict.kind, found.verdict.status


def words(found: Document) -> str:
    return " ".join([found.verdict.headline, *(ground.fact for ground in found.verdict.grounds)])


def test_a_loop_that_nothing_can_wake_is_a_deadlock() -> None:
    found = judge(job(idle(), tasks=NEVER))
    assert kind(found) == ("deadlock-lock", "established")
    chain = "task `Task-1` in do_Task-1 (train.py:7) awaits task `load` in do_load (train.py:7), which awaits a future"
    assert (
        chain in found.verdict.headline
        and "nothing is left that could wake the loop in main (train.py:40)" in found.verdict.headline
    )


def test_an_idle_worker_of_a_pool_wakes_nobody() -> None:
    worker = thread(101, *WORKER, name="asyncio_0")
    assert kind(judge(job(idle(), worker, tasks=NEVER))) == ("deadlock-lock", "established")


READ = Wait("read", target="reads from pipe:[33]", fd=5)
LIMITED = Wait("futex", ("0x7f00", "0x189", "0x0", "0x7ffd8000", "0x0", "0xffffffff"))
SLEEPER = task("sleeper", ends_in_s=3.0)
COULD_WAKE: dict[str, LivingProcess] = {
    "a timer": job(idle(), tasks=tasks(MAIN, LOAD, loop=EventLoop(100, (4,), True))),
    "another descriptor": job(idle(), tasks=tasks(MAIN, LOAD, loop=EventLoop(100, (4, 7), False))),
    "not known what is watched": job(idle(), tasks=tasks(MAIN, LOAD, loop=EventLoop(100))),
    "a thread that reads": job(idle(), thread(101, line("fetch", 3), wait=READ), tasks=NEVER),
    "a thread with a limit": job(idle(), thread(101, *SEM_TIMED, line("fetch", 3), wait=LIMITED), tasks=NEVER),
    "a thread at work": job(idle(), thread(101, line("fetch", 3), *WORKER, changed=True), tasks=NEVER),
    "a thread without Python": job(idle(), thread(101, native("poll", LIBC), wait=READ), tasks=NEVER),
    "a child": job(idle(), tasks=NEVER, children=(7,)),
    "a signal handler": job(idle(), tasks=NEVER, rest=Rest(True, ("SIGTERM",))),
    "not known which signals": job(idle(), tasks=NEVER, rest=Rest(True)),
    "threads seen one after the other": job(idle(), thread(101, *WORKER), tasks=NEVER, rest=Rest(False, ())),
    "tasks not read": job(idle(), tasks=tasks(MAIN, LOAD, complete=False)),
    "a task that is ready": job(idle(), tasks=tasks(MAIN, task("load", state="ready", awaits=None))),
    "a task that sleeps": job(idle(), tasks=tasks(MAIN, LOAD, SLEEPER)),
    "a loop that moved": job(idle(changed=True), tasks=NEVER),
    "two loops": job(idle(), tasks=Tasks((MAIN, LOAD), (LOOP, EventLoop(101, (9,), False)), True)),
    "no task": job(idle(), tasks=tasks()),
}


@pytest.mark.parametrize("one", COULD_WAKE.values(), ids=COULD_WAKE.keys())
def test_what_could_still_be_woken_only_waits(one: LivingProcess) -> None:
    found = judge(one)
    assert kind(found) == ("waiting", "supported")


def test_a_loop_of_another_make_proves_nothing() -> None:
    """It may watch one descriptor that is somebody's."""
    main = thread(100, native("uv__io_poll", "/job/uvloop/loop.so"), RUN, line("main", 40), wait=EPOLL)
    assert judge(job(main, tasks=NEVER)).verdict.kind == "waiting"


A = task("a", line("left", 3), tasks=("0xb",), direct=True, awaits="Task")
B = task("b", line("right", 9), tasks=("0xa",), direct=True, awaits="Task")


def test_tasks_that_await_each_other() -> None:
    found = judge(job(idle(), tasks=tasks(A, B, task("server"), loop=EventLoop(100, (4, 7), False))))
    assert kind(found) == ("deadlock-lock", "established") and "`a` → `b` → `a`" in found.verdict.headline
    assert "task `a` in left (train.py:3) awaits task `b`" in words(found)


def test_a_ring_that_a_timer_may_end_is_only_supported() -> None:
    found = judge(job(idle(), tasks=tasks(A, B, loop=EventLoop(100, (4,), True))))
    assert kind(found) == ("deadlock-lock", "supported") and found.verdict.against


WAIT_FOR = python("wait_for", f"{STDLIB}/asyncio/tasks.py", 507)


@pytest.mark.parametrize(
    "other",
    [
        task("b", WAIT_FOR, line("right", 9), tasks=("0xa",), direct=True),  # with a limit
        task("b", line("right", 9), tasks=("0xa", "0xc")),  # of several any may end it
        task("b", line("right", 9), tasks=("0xa",), direct=True, count=3),  # which of the three is not known
        task("b", line("right", 9), tasks=("0xc",), direct=True),
    ],
    ids=["with a limit", "of several", "of many alike", "of another"],
)
def test_what_is_no_ring(other: AsyncTask) -> None:
    found = judge(job(idle(), tasks=tasks(A, other, task("c"), loop=EventLoop(100, (4,), True))))
    assert found.verdict.kind == "waiting"


RUNNING = task("handler", line("handle", 20), state="running", awaits=None)
BLOCKING = (line("ask", 11), line("handle", 20), RUN_CALLBACK, RUN_ONCE, RUN, line("main", 40))
BLOCKED = tasks(RUNNING, LOAD, task("other"), loop=EventLoop(100))


def test_a_task_that_blocks_the_loop_is_named() -> None:
    main = thread(
        100, native("clock_nanosleep", LIBC), *BLOCKING, wait=Wait("clock_nanosleep", target="sleeps for 9 s")
    )
    found = judge(job(main, tasks=BLOCKED))
    assert found.verdict.kind == "waiting" and found.verdict.user_frame and found.verdict.user_frame.function == "ask"
    assert "the event loop is blocked by task `handler`, 2 other tasks cannot run" in found.verdict.headline


def test_a_task_that_computes_blocks_the_loop_too() -> None:
    found = judge(job(busy(100, EVALUATE, *BLOCKING), tasks=BLOCKED))
    assert found.verdict.kind == "busy-python" and "blocked by task `handler`" in found.verdict.headline


def test_a_callback_that_blocks_the_loop() -> None:
    main = thread(100, native("clock_nanosleep", LIBC), *BLOCKING)
    found = judge(job(main, tasks=tasks(LOAD, loop=EventLoop(100))))
    assert "blocked by a callback, 1 other task cannot run" in found.verdict.headline


@pytest.mark.parametrize(
    "main",
    [idle(), thread(100, *SEM_WAIT, line("elsewhere", 5), line("main", 40))],
    ids=["an idle loop", "a thread without a loop"],
)
def test_nobody_blocks_what_is_not_blocked(main: LivingThread) -> None:
    """A task that runs belongs to a loop elsewhere."""
    found = judge(job(main, tasks=BLOCKED))
    assert "blocked by" not in words(found)


def test_the_socket_a_loop_wakes_itself_by_is_noise() -> None:
    wait = Wait("epoll_wait", target="waits for fd 4: Unix socket:[7], at its other end this process itself", fd=3)
    found = judge(job(idle(wait=wait), tasks=tasks(MAIN, LOAD, loop=EventLoop(100, (4,), True))))
    assert "fd 4" not in found.verdict.headline and "its timers" in found.verdict.headline
    assert "task `load` in do_load (train.py:7), which awaits a future" in found.verdict.headline


def test_a_server_waits_for_its_clients_and_shows_its_tasks() -> None:
    wait = Wait("epoll_wait", target="waits for fd 7: 127.0.0.1:80 (LISTEN, nobody waiting)", fd=3)
    serving = tasks(MAIN, LOAD, loop=EventLoop(100, (4, 7), False))
    found = judge_living(look(job(idle(wait=wait), tasks=serving)))
    assert kind(found) == ("waiting", "supported") and "LISTEN" in found.verdict.headline
    text = render(found, width=200, color=False)
    assert "`load` in do_load (train.py:7): awaits a future" in text


def test_a_tree_counts_what_stands_alike() -> None:
    wait = python("wait", f"{STDLIB}/asyncio/locks.py", 213)
    event = [task(f"t{number}", wait, line("fetch", 10), through="Event") for number in range(50)]
    root = task("Task-1", awaits="_GatheringFuture", tasks=tuple(one.address for one in event))
    drawn = draw_tasks([root, *event])
    assert drawn == (
        "`Task-1` in do_Task-1 (train.py:7): awaits 50 tasks, one is `t0`",
        "  50 tasks, one is `t0`, in fetch (train.py:10): awaits an Event",
    )
    merged = task("t0", line("fetch", 10), count=9_998)
    assert draw_tasks([merged]) == ("9,998 tasks, one is `t0`, in fetch (train.py:10): awaits a future",)


def test_a_ring_is_drawn_once() -> None:
    assert draw_tasks([A, B]) == (
        "`a` in left (train.py:3): awaits task `b`",
        "  `b` in right (train.py:9): awaits task `a`",
    )
    assert tell_chain(A, [A, B]).endswith("awaits task `b` in right (train.py:9), which awaits task `a`")


# Whose progress

WROTE = counter("io", "bytes written", 0, 60, 120, tid=100)
BEAT = task("beat", ends_in_s=0.1)
FETCH = task("fetch", main=True)
TIMED = EventLoop(100, (4,), True)
SERVES = EventLoop(100, (4, 7), True)
IN_EVENT = task("fetch", main=True, through="Event")
IN_TIMEOUT = task("fetch", python("wait_for", f"{STDLIB}/asyncio/tasks.py", 452), line("fetch", 7), main=True)
BOTH = task("Task-1", main=True, awaits="_GatheringFuture", tasks=("0xload", "0xbeat"))
ASLEEP = python("sleep", f"{STDLIB}/asyncio/tasks.py", 649)
MOVING = replace(BEAT, moved=True)
ON, HELD = {"main": True, "moved": True}, {"main": True, "moved": False}
RUNS = task("fetch", line("handle", 20), main=True, state="running", awaits=None)
BEATS = task("beat", line("handle", 20), state="running", awaits=None)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (tasks(FETCH, BEAT, loop=TIMED), "waiting"),
        (tasks(BOTH, LOAD, BEAT, loop=TIMED), "waiting"),
        (tasks(FETCH, BEAT, loop=SERVES), "waiting"),
        (tasks(IN_EVENT, BEAT, loop=TIMED), "waiting"),
        (tasks(replace(IN_EVENT, moved=False), BEAT, loop=TIMED), "waiting"),
        (tasks(IN_TIMEOUT, BEAT, loop=TIMED), "waiting"),
        (tasks(FETCH, loop=TIMED), "waiting"),
        (tasks(task("fetch", main=True, ends_in_s=0.1), BEAT, loop=TIMED), "waiting"),
        (tasks(task("fetch", main=True, ends_in_s=0.1), loop=TIMED), "established"),
        (tasks(task("fetch", ASLEEP, **ON), BEAT, loop=TIMED), "waiting"),
        (tasks(replace(IN_TIMEOUT, moved=True), BEAT, loop=TIMED), "waiting"),
        (tasks(task("fetch", limited=True, **ON), BEAT, loop=TIMED), "waiting"),
        (tasks(task("fetch", **ON), BEAT, loop=TIMED), "supported"),
        (tasks(task("fetch", through="Queue", **ON), BEAT, loop=SERVES), "supported"),
        (tasks(replace(BOTH, tasks=("0xload",)), replace(LOAD, moved=True), BEAT, loop=TIMED), "supported"),
        (tasks(replace(BOTH, moved=True), replace(LOAD, moved=False), BEAT, loop=TIMED), "waiting"),
        (tasks(replace(BOTH, moved=True), replace(LOAD, moved=True), replace(BEAT, moved=True), loop=TIMED), "waiting"),
        (tasks(task("fetch", ASLEEP, **ON), replace(BEAT, moved=False), loop=TIMED), "supported"),
        (tasks(task("fetch", ASLEEP, **HELD), replace(BEAT, moved=True), loop=TIMED), "waiting"),
        (tasks(task("fetch", ASLEEP, **ON), task("idle", moved=False), loop=TIMED), "waiting"),
        (
            tasks(replace(BOTH, moved=False), replace(LOAD, moved=False), replace(BEAT, moved=True), loop=TIMED),
            "waiting",
        ),
        (
            tasks(replace(BOTH, moved=False), task("load", ends_in_s=9.0, moved=False), MOVING, loop=TIMED),
            "supported",
        ),
        (tasks(FETCH, loop=LOOP), "established"),
        (tasks(LOAD, BEAT, loop=TIMED), "waiting"),
        (tasks(task("load", moved=True), BEAT, loop=TIMED), "waiting"),
        (tasks(LOAD, loop=LOOP), "established"),
        (tasks(loop=TIMED), "waiting"),
        (None, "waiting"),
    ],
)
def test_what_a_loop_moves_is_its_main_tasks_where_no_other_could_have_or_that_goes_on(
    seen: Tasks | None, expected: str
) -> None:
    """Who runs for ever has no main task. A heartbeat that is awaited, too, does not stand for the others."""
    found = judge(job(idle(), tasks=seen, counters=(WROTE,)))
    assert kind(found) == (("waiting", "supported") if expected == "waiting" else ("progressing", expected))
    if expected == "waiting":
        assert "bytes written +120" in words(found)
        assert seen is None or not seen.tasks or "awaits" in words(found) or "sleeps" in words(found)


@pytest.mark.parametrize(("running", "expected"), [(RUNS, "progressing"), (BEATS, "waiting")])
def test_what_is_written_in_a_call_that_blocks_the_loop_is_the_task_s_that_blocks_it(
    running: AsyncTask, expected: str
) -> None:
    main = thread(100, native("clock_nanosleep", LIBC), *BLOCKING, wait=Wait("clock_nanosleep"))
    other = LOAD if running.main else FETCH
    found = judge(job(main, tasks=tasks(running, other, loop=EventLoop(100)), counters=(WROTE,)))
    assert found.verdict.kind == expected


def test_the_headline_begins_with_the_line_that_is_awaited() -> None:
    """Where no task is the main one, with one that cannot end by itself."""
    for seen in (tasks(IN_EVENT, BEAT, loop=SERVES), tasks(IN_EVENT, BEAT, loop=TIMED)):
        headline = judge(job(idle(), tasks=seen)).verdict.headline
        assert headline.startswith("Waiting: task `fetch` in do_fetch (train.py:7) awaits an Event; ")
    for_ever = judge(job(idle(), tasks=tasks(task("a", ends_in_s=0.1), task("train"), loop=TIMED)))
    assert "Waiting: task `train` in do_train (train.py:7) awaits a future; " in for_ever.verdict.headline
