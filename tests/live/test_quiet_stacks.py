"""Stacks of processes that run on: the same that gdb sees, and nobody is stopped who would notice it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest

from harness.capture.files.images import read_images
from harness.capture.proc import list_tids
from harness.capture.stacks.frames import Places, read_memory
from harness.capture.stacks.gdb import GDB, find_gdb
from harness.capture.stacks.ladder import take_stacks
from harness.capture.stacks.quiet_ladder import OWN_WALK, QUIET_LADDER
from harness.capture.stacks.walk.thread_calls import Doing, read_doing
from harness.capture.stacks.walk.thread_registers import hold_threads
from harness.evidence.crash import CrashFrame, CrashThread, ToolRun
from tests.live.processes import until

PROGRAM = """
import ctypes, os, select, signal, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)

def futex():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
def poll(): select.poll().poll()
def nanosleep(): time.sleep(1e6)
def epoll():
    waits = select.epoll()
    waits.register(os.pipe()[0])
    events = ctypes.create_string_buffer(64)
    while True:
        got = libc.epoll_wait(waits.fileno(), events, 4, -1)
        os.write(1, f"epoll_wait {got} {ctypes.get_errno()}\\n".encode())
def runs():
    while True:
        pow(3, 40000, 1 << 200000)
def spins():
    while True:
        pass

names = sys.argv[1:]
for name in names:
    threading.Thread(target=globals()[name], name=name, daemon=True).start()
time.sleep(0.1)
os.write(1, b"ready\\n")
signal.pause()
"""
Start = Callable[..., subprocess.Popen]
needs_gdb = pytest.mark.skipif(find_gdb() is None, reason="gdb is not installed")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen] = []

    def run(*names: str) -> subprocess.Popen:
        script = tmp_path / "program.py"
        script.write_text(textwrap.dedent(PROGRAM))
        process = subprocess.Popen(
            [sys.executable, script, *names], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=tmp_path
        )
        started.append(process)
        assert process.stdout and process.stdout.readline() == b"ready\n"
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def walk(pid: int) -> tuple[dict[str, CrashThread], ToolRun]:
    step, threads, tools = take_stacks(pid, sys.executable, 30, ladder=QUIET_LADDER)
    assert step == "native-all" and len(tools) == 1, tools
    return {_python_name(thread): thread for thread in threads}, tools[0]


def _python_name(thread: CrashThread) -> str:
    """Of the function that the thread was started with."""
    lines = [frame.function for frame in thread.frames if frame.kind == "python" and frame.file.endswith("program.py")]
    return lines[-1] if lines else "main"


def ask_gdb(pid: int) -> dict[int, list[CrashFrame]]:
    """Without what is inlined: those frames stand at their caller's address."""
    said = GDB.ask(pid, "", 60)
    places = Places(read_images(pid), read_memory(pid))
    found = {}
    for thread, _ in GDB.read(said.output, places, "gdb"):
        runs = groupby(thread.frames, key=lambda frame: frame.address)
        found[thread.tid] = [list(frames)[-1] for _, frames in runs]
    return found


def _plain(name: str | None) -> str:
    return re.sub(r"^(__GI_|__libc_|_+)+|@.*|_impl$", "", name or "")


@needs_gdb
def test_the_same_frames_as_gdb(start: Start) -> None:
    process = start("futex", "poll", "nanosleep", "epoll", "runs")
    ours, run = walk(process.pid)
    theirs = ask_gdb(process.pid)
    assert set(ours) == {"futex", "poll", "nanosleep", "epoll", "runs", "<module>"}
    for name, thread in ours.items():
        natives = [frame for frame in thread.frames if frame.kind == "native"]
        evaluated = sum(frame.kind == "python" for frame in thread.frames)
        told = [frame for frame in theirs[thread.tid] if _plain(frame.function) != "PyEval_EvalFrameDefault"]
        if name == "runs":
            natives, told = natives[-5:], told[-5:]
        if name == "epoll":
            told = told[: len(natives)]
        # gdb tells functions that have left by a jump as well: they have no place on the stack.
        known = {one.address for one in natives}
        left, told = len(told), [one for one in told if one.address in known]
        assert [one.address for one in natives] == [one.address for one in told] and left - len(told) <= 4, name
        assert len(natives) >= (2 if name == "epoll" else 5) and evaluated >= 1
        for one, other in zip(natives, told, strict=True):
            assert one.function is None or _plain(one.function) == _plain(other.function)
    assert run.stopped_ms is not None and run.interrupted == ()


def test_what_a_stop_would_end_is_not_stopped(start: Start) -> None:
    process = start("epoll", "spins")
    for _ in range(20):
        threads, _ = walk(process.pid)
        assert threads["epoll"].frames[0].function == "epoll_wait"
        python = [frame.function for frame in threads["epoll"].frames if frame.kind == "python"]
        assert python == ["epoll", "run", "_bootstrap_inner", "_bootstrap"], "libffi's frame pointer is not known"
    process.send_signal(signal.SIGTERM)
    assert process.stdout and process.stdout.read() == b"", "epoll_wait came back"


def test_sleepers_are_not_stopped_at_all(start: Start) -> None:
    process = start("futex", "poll", "nanosleep", "epoll")
    seen = [read_all(process.pid)]

    def all_rest() -> bool:
        seen.append(read_all(process.pid))
        return seen[-1] == seen[-2] and all(doing and doing.state == "S" for doing in seen[-1].values())

    until(all_rest, "not all are asleep")
    before = seen[-1]
    _, run = walk(process.pid)
    assert run.stopped_ms == 0
    assert read_all(process.pid) == before, "one of them ran"


def read_all(pid: int) -> dict[int, Doing | None]:
    return {tid: read_doing(pid, tid) for tid in list_tids(pid)}


def test_one_stop_is_short_and_leaves_nothing(start: Start) -> None:
    process = start("spins")
    (tid,) = [tid for tid in list_tids(process.pid) if tid != process.pid]
    (held,) = hold_threads(process.pid, [tid], lambda stack: stack + 4096, 10)
    assert held.error is None and held.registers and len(held.stack) == 4096 and held.stopped_ms > 0
    assert tracer(process.pid, tid) == 0
    until(lambda: (doing := read_doing(process.pid, tid)) is not None and doing.runs, "it runs on")


def test_calls_on_the_list_only(start: Start) -> None:
    """Asked for both by their ids: the one in epoll_wait is left alone, and that is said."""
    process = start("epoll", "poll")
    asleep, polls = [tid for tid in list_tids(process.pid) if tid != process.pid]
    until(lambda: "S" in states(process.pid) and len(states(process.pid)) == 1, "all sleep")
    before = read_doing(process.pid, asleep)
    held = {one.tid: one for one in hold_threads(process.pid, [asleep, polls], lambda stack: stack + 64, 10)}
    assert held[asleep].error and not held[asleep].registers and held[polls].registers
    assert read_doing(process.pid, asleep) == before, "it has not run"


def test_a_stopped_process_stays_stopped(start: Start) -> None:
    process = start("futex", "epoll", "spins")
    process.send_signal(signal.SIGSTOP)
    until(lambda: states(process.pid) == {"T"}, "stopped")
    threads, run = walk(process.pid)
    assert states(process.pid) == {"T"} and run.stopped_ms == 0
    assert {"futex", "epoll", "spins"} <= set(threads)
    assert all(len(thread.frames) > 3 for thread in threads.values())


def test_another_tracer_keeps_what_it_holds(start: Start, tmp_path: Path) -> None:
    process = start("spins", "futex")
    tids = [tid for tid in list_tids(process.pid) if tid != process.pid]
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, *map(str, tids)], stdout=subprocess.PIPE)
    assert holder.stdout and holder.stdout.readline() == b"held\n"
    try:
        threads, _ = walk(process.pid)
        assert {tracer(process.pid, tid) for tid in tids} == {holder.pid}
        assert {"spins", "futex"} <= set(threads)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


HOLDER = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None)
for tid in map(int, sys.argv[1:]):
    assert libc.ptrace(0x4206, tid, 0, 0) == 0 and libc.ptrace(0x4207, tid, 0, 0) == 0
    os.waitpid(tid, 0x40000000)
os.write(1, b"held\\n")
signal.pause()
"""


def test_killed_at_any_moment_it_leaves_nobody_stopped(start: Start) -> None:
    process = start("spins", "spins", "poll", "epoll")
    for number in range(40):
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            while True:
                list(hold_threads(process.pid, list_tids(process.pid), lambda stack: stack + 65536, 5))
        time.sleep(0.01 + number * 0.0007)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert {tracer(process.pid, tid) for tid in list_tids(process.pid)} == {0}
        assert not states(process.pid) & {"T", "t"}


def test_not_python(start: Start) -> None:
    process = subprocess.Popen(["sleep", "1000"])
    try:
        until(lambda: (doing := read_doing(process.pid, process.pid)) is not None and doing.state == "S", "sleeps")
        step, (thread,), _ = take_stacks(process.pid, None, 30, ladder=(OWN_WALK,))
        assert step == "native-all" and "nanosleep" in str(thread.frames[0].function)
    finally:
        process.kill()
        process.wait()


def states(pid: int) -> set[str]:
    return {doing.state for tid in list_tids(pid) if (doing := read_doing(pid, tid))}


def tracer(pid: int, tid: int) -> int:
    status = Path(f"/proc/{pid}/task/{tid}/status").read_text()
    return int(status.partition("TracerPid:\t")[2].split()[0])
