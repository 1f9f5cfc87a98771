"""asyncio tasks read from memory, without a stop: the program tells its own tasks, their lines and what they await."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.capture.living.tasks.pending import read_tasks
from harness.evidence.living.tasks import AsyncTask, Tasks
from tests.builders.lanes import INTERPRETERS, version_of
from tests.live.processes import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux and its /proc")

READABLE = {
    lane: python
    for lane, python in INTERPRETERS.items()
    if not version_of(lane).endswith("t") or version_of(lane) == "3.13t"
}
# Asks the interpreter itself; what an `async for` awaits does not name its generator, but the collector knows it.
TELL = """
import asyncio, gc, json, os, sys

def walk(one):
    frames = []
    while one is not None:
        kind = type(one).__name__
        if kind.startswith("async_generator_"):
            one = next(other for other in gc.get_referents(one) if type(other).__name__ == "async_generator")
            kind = "async_generator"
        prefix = {"coroutine": "cr", "generator": "gi", "async_generator": "ag"}.get(kind)
        if prefix is None:
            break
        frame = getattr(one, prefix + "_frame")
        frames.append([frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno])
        one = getattr(one, {"gi": "gi_yieldfrom"}.get(prefix, prefix + "_await"))
    return frames[::-1]

def tell():
    told = {}
    for task in asyncio.all_tasks():
        waiter = getattr(task, "_fut_waiter", None)
        kind = None if waiter is None else type(waiter).__name__
        told[hex(id(task))] = [task.get_name(), walk(task.get_coro()), kind]
    print(json.dumps(told), flush=True)

def block():
    tell()
    os.read(0, 1)
"""
MANY_WAYS = (
    TELL
    + """
async def leaf(future):
    for _ in (1,):
        await (
            future
        )

async def zählt(future):
    await leaf(future)

async def wait_event(event):
    await event.wait()

async def get(queue):
    return await queue.get()

async def take(lock):
    async with lock:
        pass

async def sleep(seconds):
    await asyncio.sleep(seconds)

async def generate():
    yield 1
    await asyncio.sleep(400)

async def iterate():
    async for _ in generate():
        pass

async def join(task):
    await task

class Own(asyncio.Task):
    pass

async def main():
    loop = asyncio.get_running_loop()
    def start(coroutine, name):
        return asyncio.create_task(coroutine, name=name)
    async def wait():
        await asyncio.wait([start(wait_event(asyncio.Event()), "wait 1"), start(wait_event(asyncio.Event()), "wait 2")])
    async def wait_for():
        await asyncio.wait_for(start(sleep(300), "timed"), 1000)
    async def shield():
        await asyncio.shield(start(sleep(300), "shielded"))
    lock = asyncio.Lock()
    await lock.acquire()
    tasks = [
        start(zählt(loop.create_future()), "名前"), start(wait_event(asyncio.Event()), "event"),
        start(get(asyncio.Queue()), "queue"), start(take(lock), "lock"), start(sleep(500), "sleep"),
        start(iterate(), "iterate"), start(wait(), "wait"), start(wait_for(), "wait_for"), start(shield(), "shield"),
        Own(get(asyncio.Queue()), name="derived"),
    ]
    async def nested():
        await asyncio.gather(asyncio.gather(start(sleep(300), "deep")), asyncio.shield(start(sleep(300), "deeper")))
    tasks += [start(join(tasks[0]), "join"), start(nested(), "nested")]
    if hasattr(asyncio, "TaskGroup"):
        async def group():
            async with asyncio.TaskGroup() as started:
                started.create_task(sleep(200), name="in group")
        tasks.append(start(group(), "group"))
    done = start(sleep(0), "done")
    await done
    loop.call_later(0.05, tell)
    await asyncio.gather(*tasks)

asyncio.run(main())
"""
)
WOKEN_BY = {
    "wait": {"wait 1", "wait 2"},
    "wait_for": {"timed"},
    "shield": {"shielded"},
    "join": {"名前"},
    "group": {"in group"},
    "nested": {"deep", "deeper"},
}
THROUGH = {"event": "Event", "queue": "Queue", "derived": "Queue", "lock": "Lock", "group": "TaskGroup"}
SLEEPS = {"sleep": 500, "iterate": 400, "timed": 300, "shielded": 300, "in group": 200, "deep": 300, "deeper": 300}


@pytest.fixture
def job(python: str, source: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    script = tmp_path / "job.py"
    script.write_text(source, encoding="utf-8")
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
    with subprocess.Popen([python, "-X", "utf8", str(script)], **pipes) as process:
        yield process
        process.kill()


def read_whole(pid: int, python: str) -> Tasks:
    """When the loop has gone back to sleep, so that all was read at one moment."""
    version = f"{version_of(next(lane for lane, one in INTERPRETERS.items() if one == python))}.0"
    version = version.replace("t.0", ".0 (free-threaded, the GIL is off)")
    found: list[Tasks] = []

    def read() -> bool:
        seen, gap, _ = read_tasks(pid, version, [pid])
        found[:] = [seen] if seen and seen.complete and gap is None else []
        return bool(found)

    until(read, "its tasks were read at one moment")
    return found[0]


def places(task: AsyncTask) -> list[list[object]]:
    return [[frame.function, frame.file, frame.line] for frame in task.frames]


lanes = pytest.mark.parametrize("python", READABLE.values(), ids=READABLE.keys())


@lanes
@pytest.mark.parametrize("source", [MANY_WAYS], ids=["many ways"])
def test_tasks_their_lines_and_what_they_await_are_the_programs_own(job: subprocess.Popen[str], python: str) -> None:
    assert job.stdout
    told = json.loads(job.stdout.readline())
    seen = read_whole(job.pid, python)
    assert {task.address: [task.name, places(task), task.awaits] for task in seen.tasks} == told
    names = {task.address: task.name for task in seen.tasks}
    by_name = {task.name: task for task in seen.tasks}
    woken = {name: {names[one] for one in task.tasks} for name, task in by_name.items() if task.tasks}
    everybody = woken.pop("Task-1")
    assert woken == {name: by for name, by in WOKEN_BY.items() if name in by_name}
    assert everybody == set(names.values()) - {"Task-1", *(name for by in woken.values() for name in by)} | {"名前"}
    assert by_name["join"].direct and not by_name["shield"].direct
    assert {name: by_name[name].through for name in THROUGH if name in by_name}.items() <= THROUGH.items()
    ends = {name: task.ends_in_s for name, task in by_name.items() if task.ends_in_s is not None}
    assert all(SLEEPS[name] - 120 < left <= SLEEPS[name] for name, left in ends.items()) and "sleep" in ends
    assert {task.state for task in seen.tasks} == {"waiting"}
    (loop,) = seen.loops
    assert loop.timed and loop.watched is not None and len(loop.watched) == 1


@pytest.mark.parametrize(
    "python", [pytest.param(READABLE[lane], id=lane) for lane in ("3.14", "3.15") if lane in READABLE]
)
@pytest.mark.parametrize("source", [MANY_WAYS], ids=["many ways"])
def test_the_interpreters_own_list_has_the_same_tasks(job: subprocess.Popen[str], python: str) -> None:
    assert job.stdout
    job.stdout.readline()
    done = subprocess.run([python, "-m", "asyncio", "ps", str(job.pid)], capture_output=True, encoding="utf-8")
    if done.returncode:
        pytest.skip(f"the interpreter may not look into another process here: {done.stderr.strip()[-200:]}")
    theirs = {int(address, 16) for address in re.findall(rf"(?m)^{job.pid}\s+(0x[0-9a-f]+)", done.stdout)}
    assert {int(task.address or "", 16) for task in read_whole(job.pid, python).tasks} == theirs


BLOCKED = (
    TELL
    + """
async def serve(number):
    await asyncio.sleep(1000 + number)

def handle():
    block()

async def main():
    tasks = [asyncio.create_task(serve(number), name=f"serve {number}") for number in range(3)]
    await asyncio.sleep(0)
    late = asyncio.create_task(serve(9), name="late")
    handle()

asyncio.run(main())
"""
)


@lanes
@pytest.mark.parametrize("source", [BLOCKED], ids=["blocked"])
def test_a_task_that_blocks_the_loop_is_the_one_that_runs(job: subprocess.Popen[str], python: str) -> None:
    assert job.stdout
    job.stdout.readline()
    seen = read_whole(job.pid, python)
    states = {task.name: task.state for task in seen.tasks}
    assert states == {
        "Task-1": "running",
        "serve 0": "waiting",
        "serve 1": "waiting",
        "serve 2": "waiting",
        "late": "new",
    }
    (loop,) = seen.loops
    assert (loop.watched, loop.timed) == (None, None)


NEVER = (
    TELL
    + """
async def main():
    asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, tell)
    await asyncio.get_running_loop().create_future()

asyncio.run(main())
"""
)


@lanes
@pytest.mark.parametrize("source", [NEVER], ids=["never"])
def test_a_loop_with_nothing_scheduled_is_not_timed(job: subprocess.Popen[str], python: str) -> None:
    assert job.stdout
    job.stdout.readline()
    (loop,) = read_whole(job.pid, python).loops
    assert loop.timed is False and loop.watched is not None and len(loop.watched) == 1


MANY = (
    TELL
    + """
async def fetch(number, event):
    await event.wait()

async def main():
    event = asyncio.Event()
    tasks = [asyncio.create_task(fetch(number, event)) for number in range(3000)]
    asyncio.get_running_loop().call_later(0.05, tell)
    await asyncio.gather(*tasks)

asyncio.run(main())
"""
)


@pytest.mark.parametrize("python", [sys.executable])
@pytest.mark.parametrize("source", [MANY], ids=["many"])
def test_very_many_that_stand_alike_are_counted(job: subprocess.Popen[str], python: str) -> None:
    assert job.stdout
    told = json.loads(job.stdout.readline())
    seen = read_whole(job.pid, python)
    assert sorted(task.count for task in seen.tasks) == [1, 3000] and len(told) == 3001


@pytest.mark.parametrize("version", [None, "unknown", "3.8.1", "3.14.0 (free-threaded, the GIL is off)", "3.16.0"])
def test_a_build_that_cannot_be_read_is_a_gap(version: str | None) -> None:
    seen, gap, _ = read_tasks(1, version, [1])
    assert seen is None and gap and gap.what == "asyncio tasks"
