"""Which locks the threads of a process hold and wait for; the programs print the ids of their own locks and threads."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.capture.living.locks.thread_locks import find_locks
from harness.capture.living.waits.thread_wait import read_wait
from harness.capture.stacks.ladder import take_stacks
from harness.evidence.crash import CrashThread
from harness.evidence.living.look import HeldLock, Wait
from tests.builders import hang_driver
from tests.builders.lanes import INTERPRETERS
from tests.live.processes import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux and its /proc")
every_python = pytest.mark.parametrize("python", INTERPRETERS.values(), ids=INTERPRETERS.keys())
WITH_GIL = {lane: python for lane, python in INTERPRETERS.items() if not lane.endswith("t")}

DEADLINE_S = 10.0
PRELUDE = """
import queue, signal, sys, threading, time
signal.alarm(50)
TIDS, IN_PLACE = {}, threading.Barrier(2)

def start(function, *arguments):
    def run():
        TIDS[function.__name__ + str(len(TIDS))] = threading.get_native_id()
        function(*arguments)
    before = len(TIDS)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while len(TIDS) == before: time.sleep(0.001)
    return thread

def say(*locks):
    print(*map(id, locks), *TIDS.values(), flush=True)
"""

Start = Callable[[str, str], SimpleNamespace]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(python: str, source: str) -> SimpleNamespace:
        script = tmp_path / "job.py"
        script.write_text(PRELUDE + source)
        process = subprocess.Popen([python, str(script)], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout
        said = list(map(int, process.stdout.readline().split()))
        return SimpleNamespace(pid=process.pid, said=said, script=script)

    yield run
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


def read_waits(pid: int) -> dict[int, Wait | None]:
    return {int(task.name): read_wait(pid, int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir()}


def count_switches(pid: int) -> dict[int, tuple[str, str]]:
    """Of each thread, its state and how often it went to sleep."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
        found[int(task.name)] = fields["State"][0], fields["voluntary_ctxt_switches"]
    return found


def is_still(pid: int, waiting: int) -> bool:
    """So many threads stand in a futex without a timeout, and nobody moves between two looks."""
    before = count_switches(pid)
    words = [wait for wait in read_waits(pid).values() if wait and wait.syscall == "futex"]
    time.sleep(0.05)
    asleep = all(state == "S" for state, _ in before.values())
    return asleep and sum(wait.arguments[3] == "0x0" for wait in words) >= waiting and count_switches(pid) == before


def look(pid: int, python: str, waiting: int) -> dict[int, tuple[HeldLock, ...]]:
    """When all is still; a reading takes less than half a second."""

    def settle() -> None:
        until(lambda: is_still(pid, waiting), f"{waiting} threads wait for locks")

    settle()
    return look_now(pid, python, settle)


def look_now(pid: int, python: str, settle: Callable[[], None] = lambda: None) -> dict[int, tuple[HeldLock, ...]]:
    waits = read_waits(pid)  # before a tool stops the threads, which interrupts their calls for a moment
    _, stacks, tools = take_stacks(pid, python, DEADLINE_S)
    assert stacks, tools
    settle()  # on a busy machine it takes a while until all have gone on and sleep again
    begun = time.process_time()
    found = find_locks(pid, stacks, waits)
    assert time.process_time() - begun < 0.5
    return found


def look_at_hang(name: str, python: str, tmp_path: Path, waiting: int) -> dict[int, tuple[HeldLock, ...]]:
    with hang_driver.start(hang_driver.HANGS / f"{name}.py", python, False, tmp_path) as hang:
        return look(hang.stuck_pid, python, waiting)


def split(locks: tuple[HeldLock, ...]) -> tuple[list[HeldLock], HeldLock | None]:
    waiting = [lock for lock in locks if lock.waiting]
    assert len(waiting) <= 1
    return [lock for lock in locks if not lock.waiting], waiting[0] if waiting else None


@every_python
def test_two_threads_in_opposite_order(python: str, tmp_path: Path) -> None:
    """Plain locks: each thread waits for the very object that the other has entered."""
    found = look_at_hang("lock_order_two", python, tmp_path, waiting=2)
    assert len(found) == 2
    (main, (held, awaited)), (other, (others, others_awaited)) = ((tid, split(locks)) for tid, locks in found.items())
    assert awaited and others_awaited and len(held) == len(others) == 1
    assert {held[0].expression, others[0].expression} == {"accounts_lock", "journal_lock"}
    assert awaited.expression == others[0].expression and others_awaited.expression == held[0].expression
    assert awaited.address == others[0].address is not None
    assert others_awaited.address == held[0].address is not None
    assert (awaited.owner_tid, others_awaited.owner_tid) == (other, main)
    assert {awaited.function, others_awaited.function} == {"transfer", "write_journal"}
    path = hang_driver.HANGS / "lock_order_two.py"
    lines = {awaited.line, others_awaited.line}
    assert lines == {hang_driver.find_line(path, f"# {word}") for word in ("transfer", "journal")}


@every_python
def test_three_threads_in_a_ring(python: str, tmp_path: Path) -> None:
    """RLocks, which know their owners; and the join of the first thread, which knows whom it waits for."""
    found = look_at_hang("lock_order_three", python, tmp_path, waiting=4)
    ring = {tid: split(locks) for tid, locks in found.items()}
    (main,) = [tid for tid, (_, awaited) in ring.items() if awaited and awaited.kind == "join"]
    held, joined = ring.pop(main)
    assert not held and joined and joined.expression == "thread.join()" and joined.function == "run"
    assert joined.owner_tid in ring and joined.owner_alive
    follows = {"cache_lock": "index_lock", "index_lock": "store_lock", "store_lock": "cache_lock"}
    for tid, (held, awaited) in ring.items():
        assert len(held) == 1 and awaited and awaited.kind == held[0].kind == "rlock"
        assert held[0].owner_tid == tid and held[0].address
        assert awaited.expression == follows[held[0].expression]
        assert awaited.owner_tid is not None and awaited.owner_alive
        assert ring[awaited.owner_tid][0][0].address == awaited.address


@every_python
def test_addresses_are_those_of_the_objects(python: str, start: Start) -> None:
    """Workers in one function, with locks that their source calls by other names than the others' does."""
    job = start(
        python,
        "class Account:\n"
        "    def __init__(self): self.lock = threading.Lock()\n"
        "def move(source, target):\n"
        "    with source.lock:\n"
        "        IN_PLACE.wait()\n"
        "        with target.lock: pass\n"
        "a, b = Account(), Account()\n"
        "start(move, a, b), start(move, b, a)\n"
        "say(a.lock, b.lock)\n"
        "time.sleep(50)",
    )
    first, second, one, two = job.said
    found = look(job.pid, python, waiting=2)
    assert set(found) == {one, two}
    for tid, other, mine, wanted in ((one, two, first, second), (two, one, second, first)):
        held, awaited = split(found[tid])
        assert [(lock.expression, lock.address) for lock in held] == [("source.lock", hex(mine))]
        assert awaited and (awaited.expression, awaited.address) == ("target.lock", hex(wanted))
        assert awaited.owner_tid == other


@every_python
def test_holder_deep_below_its_with(python: str, start: Start) -> None:
    """It holds the lock in a frame further out, and sleeps: nobody's cycle, but its owner is known."""
    job = start(
        python,
        "lock = threading.Lock()\n"
        "def deeper(n):\n"
        "    if n: deeper(n - 1)\n"
        "    time.sleep(50)\n"
        "def hold():\n"
        "    with lock:\n"
        "        deeper(5)\n"
        "def want():\n"
        "    with lock: pass\n"
        "start(hold), start(want)\n"
        "say(lock)\n"
        "time.sleep(50)",
    )
    address, holder, wanting = job.said
    found = look(job.pid, python, waiting=1)
    assert set(found) == {holder, wanting}
    held, nothing = split(found[holder])
    assert nothing is None and [(lock.expression, lock.address) for lock in held] == [("lock", hex(address))]
    _, awaited = split(found[wanting])
    assert awaited and (awaited.address, awaited.owner_tid) == (hex(address), holder)


@every_python
def test_lock_that_nobody_entered_has_no_owner(python: str, start: Start) -> None:
    """Entered and left by one thread, then taken by acquire() in another: the `with` that is over must not count."""
    job = start(
        python,
        "lock = threading.Lock()\n"
        "def visit():\n"
        "    with lock: pass\n"
        "    time.sleep(50)\n"
        "def want():\n"
        "    with lock: pass\n"
        "start(visit); time.sleep(0.1); lock.acquire(); start(want)\n"
        "say(lock)\n"
        "time.sleep(50)",
    )
    address, visitor, wanting = job.said
    found = look(job.pid, python, waiting=1)
    _, awaited = split(found[wanting])
    assert awaited and (awaited.address, awaited.owner_tid) == (hex(address), None)
    assert visitor not in found
    held, _ = split(found[job.pid])
    assert [(lock.expression, lock.address) for lock in held] == [("lock", None)]


@every_python
def test_rlock_names_a_living_and_a_dead_owner(python: str, start: Start, tmp_path: Path) -> None:
    (dead,) = look_at_hang("lock_dead_holder", python, tmp_path, waiting=1).values()
    assert [(lock.expression, lock.kind, lock.owner_tid, lock.owner_alive) for lock in dead] == [
        ("settings_lock", "rlock", None, False)
    ]
    job = start(
        python,
        "lock = threading.RLock()\n"
        "def hold():\n"
        "    lock.acquire()\n"
        "    time.sleep(50)\n"
        "def want():\n"
        "    lock.acquire()\n"
        "start(hold), start(want)\n"
        "say(lock)\n"
        "time.sleep(50)",
    )
    address, holder, wanting = job.said
    found = look(job.pid, python, waiting=1)
    (held,), (awaited,) = found[holder], found[wanting]
    assert (awaited.address, awaited.owner_tid, awaited.owner_alive) == (hex(address), holder, True)
    assert (held.expression, held.address, held.waiting) == ("lock", hex(address), False)


@every_python
def test_dead_holder_of_a_plain_lock_is_not_known(python: str, tmp_path: Path) -> None:
    (locks,) = look_at_hang("lock_dead_holder_plain", python, tmp_path, waiting=1).values()
    (lock,) = locks
    assert (lock.expression, lock.kind, lock.owner_tid, lock.owner_alive) == ("cache_lock", "lock", None, None)
    assert lock.address is not None


@every_python
@pytest.mark.parametrize(("name", "expression"), [("queue_put_full", "rows.put()"), ("queue_get", "jobs.get()")])
def test_queue_is_no_lock_that_is_held(name: str, expression: str, python: str, tmp_path: Path) -> None:
    """The queue's own lock is let go while its condition is waited for."""
    (locks,) = look_at_hang(name, python, tmp_path, waiting=1).values()
    assert [(lock.expression, lock.kind, lock.waiting) for lock in locks] == [(expression, "queue", True)]


@every_python
def test_condition_lets_its_lock_go_and_no_other(python: str, start: Start) -> None:
    job = start(
        python,
        "outer, changed = threading.Lock(), threading.Condition()\n"
        "def wait():\n"
        "    with outer:\n"
        "        with changed:\n"
        "            changed.wait()\n"
        "start(wait)\n"
        "say()\n"
        "time.sleep(50)",
    )
    (tid,) = job.said
    found = look(job.pid, python, waiting=1)
    assert [(lock.expression, lock.waiting, lock.kind) for lock in found[tid]] == [
        ("outer", False, "lock"),
        ("changed.wait()", True, "condition"),
    ]


@every_python
def test_import_lock_and_a_join(python: str, tmp_path: Path) -> None:
    found = look_at_hang("import_deadlock", python, tmp_path, waiting=2)
    main, loader = sorted(found)
    assert [(lock.expression, lock.kind, lock.waiting) for lock in found[main]] == [
        ("import import_deadlock", "import", False),
        ("loader.join()", "join", True),
    ]
    assert found[main][-1].owner_tid == loader
    assert [(lock.expression, lock.kind, lock.waiting) for lock in found[loader]] == [
        ("import import_deadlock", "import", True)
    ]


@pytest.mark.parametrize("python", WITH_GIL.values(), ids=WITH_GIL.keys())
def test_who_waits_for_the_gil(python: str, tmp_path: Path) -> None:
    try:
        hang = hang_driver.start(hang_driver.HANGS / "gil_held_sleeps.py", python, False, tmp_path)
    except hang_driver.NotHere as why:
        pytest.skip(str(why))
    with hang:
        found = until(lambda: look_now(hang.pid, python), "somebody waits for the GIL")
    (locks,) = found.values()
    assert [(lock.expression, lock.kind, lock.waiting) for lock in locks] == [("the GIL", "gil", True)]


@every_python
def test_waiter_of_whom_little_is_known_is_no_owner(python: str, start: Start) -> None:
    """Up to 3.11 it has the lock's __exit__ on its stack before it has the lock."""
    job = start(
        python,
        "lock = threading.Lock()\n"
        "def want():\n"
        "    with lock: pass\n"
        "lock.acquire(); start(want), start(want)\n"
        "say(lock)\n"
        "time.sleep(50)",
    )
    address, one, two = job.said
    until(lambda: is_still(job.pid, 2), "two threads wait for the lock")
    _, stacks, _ = take_stacks(job.pid, python, DEADLINE_S)
    waits = until(lambda: (found := read_waits(job.pid))[one] and found, "the call goes on")
    (awaited,) = find_locks(job.pid, stacks, {**waits, two: None})[one]
    assert (awaited.address, awaited.owner_tid) == (hex(address), None)


def test_source_changed_since_tells_nothing(start: Start) -> None:
    """But the object behind the lock word is still known."""
    job = start(sys.executable, "lock = threading.Lock(); lock.acquire(); say(lock)\nlock.acquire()")
    later = time.time() + 60
    os.utime(job.script, (later, later))
    found = look(job.pid, sys.executable, waiting=1)
    ((only,),) = found.values()
    assert (only.expression, only.address) == ("a lock", hex(job.said[0]))


def test_control_has_no_lock_that_is_waited_for(tmp_path: Path) -> None:
    path = hang_driver.HANGS / "server_sleeping.py"
    with hang_driver.start(path, sys.executable, False, tmp_path) as hang:
        assert look(hang.pid, sys.executable, waiting=0) == {}


def test_threads_outside_of_python_are_left_out(start: Start) -> None:
    """A reading without stacks, and of a process that is gone, is no error."""
    job = start(sys.executable, "say()\ntime.sleep(50)")
    assert find_locks(job.pid, (), read_waits(job.pid)) == {}
    assert find_locks(2**22 + 1, (CrashThread(1, None, False, (), "none"),), {}) == {}
