"""The stacks of all threads of a process, native and Python, without stopping it: at most single threads for a moment.

A thread that sleeps is read where it stands: its stack and code pointer are in /proc, and the images' frame tables lead
on from there; /proc tells as well whether it has run meanwhile. Only where that does not reach the thread's beginning
(a frame whose size is in a register), and for a thread that runs, one thread is stopped to have its registers, if its
system call comes out the same (thread_registers.py). What cannot be had like that is missing, and it is said.
"""

from __future__ import annotations

import bisect
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.capture.files.images import PYTHON_FILE, Row, list_images, read_maps
from harness.capture.stacks.cpython.own_reader import read_through
from harness.capture.stacks.frames import Places, clean_symbol
from harness.capture.stacks.function_names import name_functions
from harness.capture.stacks.walk.thread_calls import Doing, read_doing, survives_stop
from harness.capture.stacks.walk.thread_registers import MOST_STACK, Held, end_with_parent, print_held, read_held
from harness.capture.stacks.walk.unwind import Memory, Walk, Walker, list_code, name_registers
from harness.evidence.crash import Image

_PROC = Path("/proc")
_MOST_FRAMES = 1000
_TRIES = 3
_EVALUATES = "_PyEval_EvalFrameDefault"
_VDSO = "[vdso]"
_ELF_64 = b"\x7fELF\x02"

# (work in a process of its own, deadline_s) -> what it printed, and what went wrong
RunApart = Callable[[Callable[[], None], float], tuple[bytes, "str | None"]]
# (deadline_s) -> threads with Python frames, by tid, and what went wrong
ReadPython = Callable[[float], tuple[dict[int, dict[str, Any]], "str | None"]]


class _Seen(NamedTuple):
    """One thread's native frames; `doing`: at that moment, null when it ran."""

    walk: Walk
    doing: Doing | None


class OwnWalk:
    """One process. `run_apart`, `read_python`: from stacks.py, which knows the tools."""

    def __init__(self, pid: int, run_apart: RunApart, read_python: ReadPython, deadline_s: float) -> None:
        self._pid, self._run_apart, self._read_python = pid, run_apart, read_python
        self._end = time.monotonic() + deadline_s
        _check_kind(pid)
        rows = read_maps(pid)
        self._rows = [(row.start, row.end) for row in rows]
        self._read = _open_reader(pid)
        images = list_images(rows)
        self._has_python = any(PYTHON_FILE.search(image.path) for image in images)
        self._places = Places((*images, *_find_vdso(rows)), self._read)
        self._walker = Walker(Memory(self._read, self._places, list_code(rows)), os.uname().machine)
        self._held: list[Held] = []
        self._notes: list[str] = []

    def describe(self) -> dict[str, Any]:
        before = {tid: read_doing(self._pid, tid) for tid in self._list_tids()}
        python, error = self._ask_python()
        seen = self._look(before)
        moved = {tid for tid, one in seen.items() if one.doing is None or one.doing != before[tid]}
        torn: set[int] = set()
        if not error and moved & python.keys():
            again, error = self._ask_python()
            torn = {tid for tid in moved if _functions(python.get(tid)) != _functions(again.get(tid))}
            python |= again
        self._notes += [f"Python frames: {error}"] if error else []
        names = self._name(seen.values())
        return {
            "stopped_ms": round(sum(held.stopped_ms for held in self._held), 3),
            "stopped": len([held for held in self._held if held.registers]),
            "interrupted": [f"{held.interrupted} of thread {held.tid}" for held in self._held if held.interrupted],
            "notes": self._notes,
            "threads": [
                {**self._describe(tid, one, python, names, bool(error)), "torn": tid in torn}
                for tid, one in seen.items()
            ],
        }

    def _ask_python(self) -> tuple[dict[int, dict[str, Any]], str | None]:
        return self._read_python(max(0.0, self._end - time.monotonic())) if self._has_python else ({}, None)

    def _list_tids(self) -> list[int]:
        return sorted(map(int, os.listdir(_PROC / str(self._pid) / "task")))  # noqa: PTH208 (only names are wanted)

    def _look(self, threads: Iterable[int]) -> dict[int, _Seen]:
        seen = {tid: self._look_asleep(tid) for tid in threads}
        wanted = [tid for tid, one in seen.items() if one is None or self._is_worth_a_stop(tid, one)]
        for held in self._hold(wanted):
            if held.registers:
                start = held.registers.get("rsp", held.registers.get("sp", 0))
                walk = self._walker.walk(held.registers, _MOST_FRAMES, (start, held.stack))
                seen[held.tid] = _Seen(walk, None)
            elif seen.get(held.tid) is None:  # it runs and sleeps by turns
                seen[held.tid] = self._look_asleep(held.tid)
        left = sum(one is None for one in seen.values())
        if left:
            self._notes.append(f"{left} of {len(seen)} threads: they run, and a stop could change what they are told")
        return {tid: one or _Seen(Walk(()), None) for tid, one in seen.items()}

    def _look_asleep(self, tid: int) -> _Seen | None:
        """Null: it ran each time."""
        for _ in range(_TRIES):
            before = read_doing(self._pid, tid)
            if before is None or before.place is None:
                continue
            start, pc = before.place
            copy = self._read(start, max(0, min(MOST_STACK, self._find_end(start) - start)))
            if read_doing(self._pid, tid) == before:
                registers = name_registers(os.uname().machine, start, pc)
                return _Seen(self._walker.walk(registers, _MOST_FRAMES, (start, copy)), before)
        return None

    def _is_worth_a_stop(self, tid: int, seen: _Seen) -> bool:
        if seen.doing is None or seen.walk.whole or seen.walk.deep:
            return False
        return survives_stop(self._pid, tid, seen.doing.call)

    def _find_end(self, stack: int) -> int:
        """Of the mapping; one that is new is read as far as it goes."""
        at = bisect.bisect_right(self._rows, (stack, 1 << 64)) - 1
        return self._rows[at][1] if at >= 0 and stack < self._rows[at][1] else stack + MOST_STACK

    def _hold(self, tids: Sequence[int]) -> list[Held]:
        left_s = self._end - time.monotonic()
        if not tids or left_s <= 0:
            return []
        output, error = self._run_apart(lambda: print_held(self._pid, tids, self._find_end, left_s), left_s)
        self._notes += [f"registers: {error.strip().splitlines()[-1]}"] if error else []
        found = [] if error else read_held(output)
        self._notes += sorted({f"thread {one.tid}: {one.error}" for one in found if one.error})[:_TRIES]
        self._held += found
        return found

    def _name(self, seen: Iterable[_Seen]) -> dict[int, str]:
        """By the address that is shown. The innermost is where the program was, the others are where calls return."""
        asked: dict[int, list[int]] = {}
        for one in seen:
            for index, address in enumerate(one.walk.addresses):
                inner = one.walk.addresses[index - 1] if index else 0
                called = index > 0 and not self._places.holds_trampoline(inner)
                asked.setdefault(address - called, []).append(address)
        images: dict[Image, set[int]] = {}
        for address in asked:
            if image := self._places.find(address):
                images.setdefault(image, set()).add(address)
        found = name_functions(images, self._read, _PROC / str(self._pid) / "root")
        return {shown: name for address, name in found.items() for shown in asked[address]}

    def _describe(
        self, tid: int, seen: _Seen, python: dict[int, dict[str, Any]], names: dict[int, str], failed: bool
    ) -> dict[str, Any]:
        """As pystack's engine tells it: outermost frame first."""
        known = python.get(tid)
        return {
            "tid": tid,
            "name": (known or {}).get("name") or _read_name(self._pid, tid),
            "native": [self._describe_frame(address, names) for address in reversed(seen.walk.addresses)],
            "python": (known or {}).get("python", []),
            "python_state": True if known else None if failed else False,
            "holds_gil": (known or {}).get("holds_gil"),
            "whole": seen.walk.whole,
        }

    def _describe_frame(self, address: int, names: dict[int, str]) -> dict[str, Any]:
        symbol, image = names.get(address, ""), self._places.find(address)
        return {
            "address": address,
            "symbol": symbol,
            "file": "",
            "line": 0,
            "image": image.path if image else "",
            "evaluates": (clean_symbol(symbol) or "").startswith(_EVALUATES),
        }


def _check_kind(pid: int) -> None:
    """The numbers and registers of a 32-bit program are others."""
    with (_PROC / str(pid) / "exe").open("rb") as file:
        if file.read(5) != _ELF_64:
            raise ValueError("it is not a 64-bit program")


def _open_reader(pid: int) -> Callable[[int, int], bytes]:
    """Opened once: a walk asks for thousands of words."""
    return read_through(os.open(_PROC / str(pid) / "mem", os.O_RDONLY | os.O_CLOEXEC))


def _find_vdso(rows: list[Row]) -> list[Image]:
    return [Image(_VDSO, hex(row.start), hex(row.end)) for row in rows if row.path == _VDSO]


def _read_name(pid: int, tid: int) -> str | None:
    try:
        return (_PROC / str(pid) / "task" / str(tid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return None


def _functions(thread: dict[str, Any] | None) -> list[tuple[str, str]]:
    return [(frame["function"], frame["file"]) for frame in (thread or {}).get("python", [])]


def print_walk(pid: int, run_apart: RunApart, read_python: ReadPython, deadline_s: float) -> None:
    """For stacks.fork_tool."""
    end_with_parent(deadline_s)
    answer = json.dumps(OwnWalk(pid, run_apart, read_python, deadline_s).describe()).encode()
    with open(1, "wb", closefd=False) as out:
        out.write(answer)
