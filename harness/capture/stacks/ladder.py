"""The stacks of every thread of one process, native and Python frames merged, by the best tool that manages.

Each tool runs in a child with a deadline and its own words are kept; the target is never left stopped by one.
Unwinds nothing itself: raw addresses are the crash record's business.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from harness import native
from harness.capture.files.images import read_images
from harness.capture.machine.refusals import REFUSED, explain
from harness.capture.machine.trust import find_tool
from harness.capture.proc import is_stopping, outer_tids
from harness.capture.stacks.cpython.own_reader import read_own
from harness.capture.stacks.frames import Places, read_engine, read_memory, read_spy, strip_own_frames
from harness.capture.stacks.pystack_engine import print_threads
from harness.capture.stacks.tools import Said, _nothing, fork_tool, run_tool
from harness.errors import Unreadable
from harness.evidence.crash import CrashThread, Image, Step, ToolRun

_MOST_WORDS = 2000
_ENOUGH_TO_TRY_S = 0.02
# A tool that hangs must leave the next one its chance: with 400 threads and torch pystack takes 1.3 s, py-spy 0.4 s.
_FOR_THE_NEXT_S = 0.8
CARRIED: dict[str, str] = {}  # on another host: the tools that were found or sent there, and where


class Rung(NamedTuple):
    """`read` turns what the tool printed into threads, each with what is wrong with it (null: nothing).

    `stops`: the tool stops the process by a SIGSTOP, and may leave it so when it ends in the middle.
    """

    engine: str
    mode: str
    step: Step
    ask: Callable[[int, str, float], Said]
    read: Callable[[bytes, Places, str], Iterator[tuple[CrashThread, str | None]]]
    stops: bool = True

    @property
    def tool(self) -> str:
        return f"{self.engine} {self.mode}".strip()


def find_py_spy() -> str:
    """Its path, which begins with "/", or why there is none."""
    if "py-spy" in CARRIED:
        return CARRIED["py-spy"]
    found = find_tool("py-spy")
    return found.path or f"py-spy is not run: {found.why}"


def has_pystack() -> bool:
    """Not so on another host, unless the target's own environment has it."""
    return importlib.util.find_spec("pystack") is not None


def _pystack(pid: int, mode: str, deadline_s: float, meanwhile: Callable[[], None] = _nothing) -> Said:
    reporting = {"native-all": "ALL", "native": "PYTHON", "": "OFF"}[mode]
    return fork_tool(lambda: print_threads(pid, reporting, deadline_s), deadline_s, meanwhile)


def ask_py_spy(pid: int, deadline_s: float, *options: str) -> Said:
    """It stops the process, but for `--nonblocking`."""
    tool = find_py_spy()
    if not tool.startswith("/"):
        return Said(b"", tool)
    return run_tool([tool, "dump", "--json", *options, "--pid", str(pid)], deadline_s)


def _py_spy(pid: int, mode: str, deadline_s: float) -> Said:
    return ask_py_spy(pid, deadline_s, *(["--native"] if mode else []))


def _own(pid: int, mode: str, deadline_s: float) -> Said:
    return Said(*read_own(pid, deadline_s, outer_tids(pid)))


LADDER = (
    Rung("pystack", "native-all", "native-all", _pystack, read_engine, stops=False),
    Rung("pystack", "native", "native", _pystack, read_engine, stops=False),
    Rung("py-spy", "native", "native", _py_spy, read_spy),
    Rung("py-spy", "", "python", _py_spy, read_spy),
    Rung("own reader", "", "python", _own, read_spy, stops=False),
)
# An unwinder would follow an endless recursion to its end; what Python runs can be read without one.
DEEP_LADDER = (Rung("pystack", "", "python", _pystack, read_engine, stops=False), *LADDER[-2:])


def use_waiting_time(meanwhile: Callable[[], None]) -> Sequence[Rung]:
    """The ladder, with something for us to do while the first tool works."""
    return (LADDER[0]._replace(ask=functools.partial(_pystack, meanwhile=meanwhile)), *LADDER[1:])


def take_stacks(
    pid: int,
    python: str | None,
    deadline_s: float,
    *,
    tid: int | None = None,
    own_library: str = str(native.LIBRARY),
    ladder: Sequence[Rung] = LADDER,
) -> tuple[Step, tuple[CrashThread, ...], tuple[ToolRun, ...]]:
    """The first rung that shows thread `tid` (any thread, when null) wins; else the first that showed anything.

    `python` is the target's interpreter; when null, only the engine that finds one by itself is asked, and gdb.
    """
    look = _Look(pid, tid, own_library, time.monotonic() + deadline_s)
    best: tuple[Step, tuple[CrashThread, ...]] = ("none", ())
    present = [rung for rung in ladder if rung.engine != "pystack" or has_pystack()]
    if not python:
        present = [rung for rung in present if rung is present[0] or rung.engine == "gdb"]
    for rung in present:
        threads = look.climb(rung, last=rung is present[-1])
        if look.shows_crash(threads):
            return rung.step, threads, tuple(look.tools)
        if not best[1] and any(thread.frames for thread in threads):
            best = rung.step, threads
    return (*best, tuple(look.tools))


class _Look:
    """One look at one process: what is known before the first tool, and what each tool cost."""

    def __init__(self, pid: int, tid: int | None, own_library: str, end: float) -> None:
        self.pid, self.tid, self.own_library, self.end = pid, tid, own_library, end
        self.places = Places(_read_images(pid), read_memory(pid))
        self.was_stopped = is_stopping(pid)
        self.tools: list[ToolRun] = []
        self.overdue: set[str] = set()

    def climb(self, rung: Rung, last: bool) -> tuple[CrashThread, ...]:
        begun = time.monotonic()
        left_s = self.end - begun
        given_s = left_s if last else max(left_s / 2, left_s - _FOR_THE_NEXT_S)
        threads: tuple[CrashThread, ...] = ()
        said = Said(b"", None)
        if rung.engine in self.overdue:
            error: str | None = "not tried: it did not answer before"
        elif given_s < _ENOUGH_TO_TRY_S:
            error = "not tried: no time was left"
        else:
            said = self._ask(rung, given_s)
            threads, error = self._read(rung, said)
        seconds = round(time.monotonic() - begun, 4)
        run = ToolRun(rung.tool, seconds, _shorten(error), said.pid, said.stopped_ms, said.interrupted)
        self.tools.append(run)
        return threads

    def _ask(self, rung: Rung, given_s: float) -> Said:
        try:
            said = rung.ask(self.pid, rung.mode, given_s)
        except REFUSED as error:
            return Said(b"", explain(error))
        if said.overdue:
            self.overdue.add(rung.engine)
        if rung.stops and said.cut_short and not self.was_stopped:
            let_go(self.pid)
        return said

    def _read(self, rung: Rung, said: Said) -> tuple[tuple[CrashThread, ...], str | None]:
        if said.error is not None:
            return (), said.error
        try:
            told = list(rung.read(said.output, self.places, rung.tool))
        except Unreadable as error:
            return (), f"its answer cannot be read: {error}"
        outer = outer_tids(self.pid) if rung.engine == "py-spy" else {}
        threads = tuple(self._finish(thread, outer) for thread, _ in told)
        notes = [note for _, note in told if note]
        if not self.shows_crash(threads):
            notes.append("no frames" if self.tid is None else f"no frames of thread {self.tid}")
        return threads, "; ".join(notes) or None

    def _finish(self, thread: CrashThread, outer: dict[int, int]) -> CrashThread:
        frames, tid = strip_own_frames(thread.frames, self.own_library), outer.get(thread.tid, thread.tid)
        return msgspec.structs.replace(thread, tid=tid, frames=frames, crashed=tid == self.tid)

    def shows_crash(self, threads: Sequence[CrashThread]) -> bool:
        return any(thread.frames for thread in threads if self.tid in (None, thread.tid))


def _read_images(pid: int) -> tuple[Image, ...]:
    try:
        return read_images(pid)
    except OSError:
        return ()  # offsets will be missing; whoever reads the mappings says why


def _shorten(words: str | None) -> str | None:
    """The end of it: a traceback's last line is the one that matters."""
    return words if words is None or len(words) <= _MOST_WORDS else "…" + words[1 - _MOST_WORDS :]


def let_go(pid: int) -> None:
    """A tool that ends between PTRACE_ATTACH and PTRACE_DETACH leaves the SIGSTOP of the former behind; man 2 ptrace.

    Nobody can see it for a moment: it is no longer pending and the target not yet stopped. SIGCONT undoes that too, and
    somebody else's SIGSTOP: never to be used after a tool that ended by itself, which has taken its own back.
    """
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGCONT)
