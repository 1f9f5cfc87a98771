"""The ladder of a look at a process that shall not notice it: our own walk, and tools that stop nothing. Linux.

Python's frames are read while the process runs on, by pystack's engine, by py-spy, or by our own reader. Which native
frame runs which of them is told by marks of the interpreter (where a call into it began), never by counting alone.

Compared on a torch process of 44 threads that sleep: pystack --native-all has all of them stand still for three
quarters of its time and py-spy --native for a quarter; this ladder stops none of them and takes 0.9 times as long as
pystack. A thread that runs stands still for a thousandth of the time that pystack takes (tests/bench/look_rows.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from harness.capture.proc import outer_tids
from harness.capture.stacks.cpython.own_reader import read_own
from harness.capture.stacks.frames import EngineThread, read_spy, read_walk
from harness.capture.stacks.ladder import LADDER, Rung, ask_py_spy, has_pystack
from harness.capture.stacks.py_spy import fill_tids
from harness.capture.stacks.pystack_engine import print_threads
from harness.capture.stacks.tools import Said, fork_tool
from harness.capture.stacks.walk.own_walk import print_walk
from harness.errors import Unreadable
from harness.evidence.text.answers import decode_json

Native = Literal["auto", "always", "never"]

_SHARE = 0.95  # of the time, so that the child ends by itself
_TRIES = 2


class _Account(Struct, frozen=True):
    stopped_ms: float
    interrupted: tuple[str, ...]


class _Frame(Struct, frozen=True):
    name: str
    filename: str
    line: int
    is_entry: bool | None = None
    is_shim_entry: bool = False


class _Thread(Struct, frozen=True):
    """Innermost frame first."""

    frames: tuple[_Frame, ...]
    os_thread_id: int | None = None
    thread_name: str | None = None
    owns_gil: bool | None = None


_Threads = dict[int, dict[str, Any]]


def _ask(pid: int, mode: str, deadline_s: float) -> Said:
    read_python = functools.partial(_read_python, pid)
    said = fork_tool(lambda: print_walk(pid, _run_apart, read_python, deadline_s * _SHARE), deadline_s)
    if said.error is not None:
        return said
    try:
        account = decode_json(said.output, _Account)
    except Unreadable:
        return said  # whoever reads the stacks in it says so
    return said._replace(stopped_ms=account.stopped_ms, interrupted=account.interrupted)


def _run_apart(work: Callable[[], None], deadline_s: float) -> tuple[bytes, str | None]:
    said = fork_tool(work, deadline_s)
    return said.output, said.error


def _read_python(pid: int, deadline_s: float) -> tuple[_Threads, str | None]:
    """By thread, as pystack's engine tells it; and what each said that could not."""
    words = []
    for read in (_read_by_pystack, _read_by_py_spy, _read_by_ourselves):
        found, error = read(pid, deadline_s / 3)
        if error is None:
            return found, None
        words.append(error.strip().splitlines()[-1] if error.strip() else "no answer")
    return {}, "; ".join(words)


def _read_by_pystack(pid: int, deadline_s: float) -> tuple[_Threads, str | None]:
    """In one more child: the engine can break down over what it reads while that changes. Then it may try again."""
    if not has_pystack():
        return {}, "pystack is not there"
    for _ in range(_TRIES):
        said = fork_tool(lambda: print_threads(pid, "OFF", deadline_s / _TRIES, stop=False), deadline_s / _TRIES)
        if said.error is None:
            return _translate_engine(said.output, outer_tids(pid))
    return {}, f"pystack: {said.error}"


def _read_by_py_spy(pid: int, deadline_s: float) -> tuple[_Threads, str | None]:
    return _translate(_ask_py_spy(pid, "", deadline_s), outer_tids(pid))


def _read_by_ourselves(pid: int, deadline_s: float) -> tuple[_Threads, str | None]:
    return _translate(Said(*read_own(pid, deadline_s, outer_tids(pid))), {})


def _translate(said: Said, outer: dict[int, int]) -> tuple[_Threads, str | None]:
    if said.error is not None:
        return {}, said.error
    try:
        threads = decode_json(said.output, list[_Thread])
    except Unreadable as error:
        return {}, f"its answer cannot be read: {error}"
    found = ((outer.get(thread.os_thread_id or 0, thread.os_thread_id), thread) for thread in threads)
    return {tid: _describe(thread) for tid, thread in found if tid}, None


def _translate_engine(output: bytes, outer: dict[int, int]) -> tuple[_Threads, str | None]:
    try:
        threads = decode_json(output, list[EngineThread])
    except Unreadable as error:
        return {}, f"pystack: its answer cannot be read: {error}"
    return {outer.get(thread.tid, thread.tid): _describe_engine(thread) for thread in threads}, None


def _describe_engine(thread: EngineThread) -> dict[str, Any]:
    frames = [
        {"function": one.function, "file": one.file, "line": one.line, "entry": one.entry, "shim": one.shim}
        for one in thread.python
    ]
    return {"name": thread.name, "python": frames, "holds_gil": thread.holds_gil}


def _describe(thread: _Thread) -> dict[str, Any]:
    """Outermost frame first."""
    frames = [
        {
            "function": frame.name.rpartition(".")[2],
            "file": frame.filename,
            "line": frame.line,
            "entry": bool(frame.is_entry or frame.is_shim_entry),
        }
        for frame in reversed(thread.frames)
    ]
    return {"name": thread.thread_name, "python": frames, "holds_gil": thread.owns_gil}


OWN_WALK = Rung("own walk", "", "native-all", _ask, read_walk, stops=False)


def _ask_py_spy(pid: int, mode: str, deadline_s: float) -> Said:
    """Before 3.11 it does not tell thread ids by itself."""
    said = ask_py_spy(pid, deadline_s, "--nonblocking")
    try:
        return said if said.error is not None else said._replace(output=fill_tids(pid, said.output))
    except (Unreadable, OSError) as error:
        return said._replace(error=f"its answer cannot be read: {error}")


QUIET_LADDER = (OWN_WALK, Rung("py-spy", "nonblocking", "python", _ask_py_spy, read_spy, stops=False), LADDER[-1])
