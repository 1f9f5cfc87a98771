"""Where the threads of one process stand: their stacks, the system calls they wait in, the locks they hold or want.

Stops the process for the stacks only if that was asked for (`native` "always"); else at most single threads for a
moment (quiet_stacks.py). How long is measured. Whether it may be stopped is for the caller to know. A thread that is
found at the same place (/proc: stack and code pointer) as after the first look has not moved, and need not be looked at
again to know that.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from msgspec.structs import replace

from harness.capture.files.images import PYTHON_FILE
from harness.capture.living.counters.process import Tally
from harness.capture.living.identity import read_in_time
from harness.capture.living.locks.thread_locks import find_locks
from harness.capture.living.source.lock_lines import Sources
from harness.capture.living.source.tending import tends_children
from harness.capture.living.stopwatch import Stopwatch
from harness.capture.living.waits.peers import add_peers, compare_peers
from harness.capture.living.waits.rest import read_rest
from harness.capture.living.waits.thread_wait import read_place, read_wait
from harness.capture.stacks.gdb import GDB, INSTALL, find_gdb
from harness.capture.stacks.ladder import LADDER, Rung, has_pystack, take_stacks
from harness.capture.stacks.py_spy import Spy
from harness.capture.stacks.quiet_ladder import OWN_WALK, QUIET_LADDER, Native
from harness.evidence.crash import CrashFrame, CrashThread, Step, ToolRun
from harness.evidence.gap import Gap
from harness.evidence.living.look import SLEEPS_AGAIN, HeldLock, HotSpot, LivingThread, Rest, ThreadState, Wait

_WHAT = "native stacks"
_BUSY_SHARE = 0.2
Taken = tuple[Step, tuple[CrashThread, ...], tuple[ToolRun, ...]]
_LOCKS_S = 5.0
_WALKS = 4  # that find a thread in one function of the interpreter before it is believed to stay there
_EVALUATES = "_PyEval_EvalFrame"
_C_LIBRARY = re.compile(r"/lib[cm][.-][^/]*$|/ld-musl-[^/]*$")


class Standing:
    """`tally`, `spy`: of the same process; whose threads there are, and their Python lines, is known to them."""

    def __init__(self, pid: int, tally: Tally, spy: Spy, native: Native) -> None:
        self.pid, self._tally, self._spy, self._native = pid, tally, spy, native
        self.sources = Sources(pid)
        self.stacks: list[tuple[CrashThread, ...]] = []
        self.tools: list[ToolRun] = []
        self.stopped_ms = 0.0
        self.took_s = 0.0
        self.gap: Gap | None = None
        self._places: dict[int, str | None] = {}
        self.rest: Rest | None = None
        self._together: object = None
        self._waits: dict[int, Wait | None] = {}
        self._locks: dict[int, tuple[HeldLock, ...]] = {}
        self._locks_of: object = None

    def look_at_stacks(self, python: str | None, deadline_s: float) -> None:
        """Of all threads, native and Python: some tenths of a second. It stands for that long if that was asked for."""
        if self._native == "never":
            self.skip_stacks("not asked for (--native never)")
            return
        if self._native == "always" and python is None and find_gdb() is None:
            self.gap = Gap(_WHAT, f"process {self.pid} is not Python, and there is no gdb", INSTALL)
            return
        begun = time.monotonic()
        step, threads, tools = self._take_stacks(python, deadline_s)
        self.took_s = time.monotonic() - begun
        self.tools += tools
        self.stacks += [threads] if threads else []
        self._places = self._read_places()
        if step != "native-all":
            words = [f"{run.tool}: {run.error.strip().splitlines()[-1]}" for run in tools if run.error]
            words += [] if has_pystack() else ["pystack, which sees threads that Python does not know, is not there"]
            self.gap = Gap(f"some {_WHAT}" if threads else _WHAT, "; ".join(words))
        elif self._native == "auto" and tools[-1].error:
            self.gap = Gap(f"some {_WHAT}", tools[-1].error)

    def _take_stacks(self, python: str | None, deadline_s: float) -> Taken:
        if self._native == "always":
            with Stopwatch(self.pid) as watch:
                taken = take_stacks(self.pid, python, deadline_s, ladder=LADDER if python else (GDB,))
            self.stopped_ms += watch.stopped_ms
            self._tally.discount()
            return taken
        ladder: tuple[Rung, ...] = QUIET_LADDER if python else (OWN_WALK,)
        taken = take_stacks(self.pid, python, deadline_s, ladder=ladder)
        self.stopped_ms += sum(run.stopped_ms or 0.0 for run in taken[2])
        if any(run.interrupted for run in taken[2]):
            self._tally.discount()
        return taken

    @property
    def interrupted(self) -> tuple[str, ...]:
        """System calls that our stops of threads may have cut short."""
        return tuple(f"{call}, by {run.tool}" for run in self.tools for call in run.interrupted)

    def skip_stacks(self, why: str) -> None:
        if not self.stacks:
            self.gap = Gap(_WHAT, why)

    @property
    def is_outdated(self) -> bool:
        """Whether a thread that Python knows has fallen asleep elsewhere, or one that it does not know has moved."""
        seen, spied = self._list_stacks(), self._spy.last()
        now = self._read_places()
        for tid, state in self._states().items():
            place = now.get(tid)
            if place is not None and place == self._places.get(tid):
                continue
            spy = spied.get(tid)
            if spy is None:
                if tid not in seen or self._tally.cpu_s(tid) > 0:
                    return True
            elif state != "R" and not _is_at(seen.get(tid), spy.frames[0].place if spy.frames else None):
                return True
        return False

    def list_in_call(self) -> dict[int, list[CrashFrame]]:
        """Of threads that stand on one Python line: the functions of the interpreter that each walk found above it.

        A regular expression or a power of integers is one call, and a loop of one line is not: it comes back to the
        evaluation time and again, and makes new objects.
        """
        found: dict[int, list[CrashFrame]] = {}
        for tid, state in self._states().items():
            seen = [thread.frames for threads in self.stacks for thread in threads if thread.tid == tid]
            if state == "R" and seen and len(seen) == len(self.stacks) and self._spy.stands(tid):
                above = [list(_list_called(frames)) for frames in seen]
                often = [{frame.function for frame in one} for one in above]
                common = [frame for frame in above[-1] if all(frame.function in names for names in often)]
                found |= {tid: common} if common else {}
        return found

    def look_into_calls(self, python: str | None, deadline_s: float) -> None:
        """Some more walks, where all until now have found a thread in one call of the interpreter."""
        end_s = time.monotonic() + deadline_s
        while 0 < len(self.stacks) < _WALKS and self.list_in_call() and time.monotonic() < end_s:
            before = len(self.stacks)
            self.look_at_stacks(python, end_s - time.monotonic())
            if len(self.stacks) == before:
                return

    def _read_places(self) -> dict[int, str | None]:
        tids = list(self._states())
        nothing: dict[int, str | None] = {}
        return read_in_time(lambda: {tid: read_place(self.pid, tid) for tid in tids}, nothing)

    def look_at_waits(self) -> None:
        """Next to the last stacks. Null for a thread that is on CPU."""
        now, rest = read_rest(self.pid, lambda: self._read_waits(list(self._states())))
        calls = {tid: (wait.syscall, wait.arguments) for tid, wait in now.items() if wait is not None}
        if rest.together:
            self._together = calls
        elif calls and calls == self._together:  # one of our tools has come in between, and they are where they were
            rest = replace(rest, together=True)
        self.rest = rest
        self._waits = {tid: self._recall(tid, wait) for tid, wait in now.items()}

    def look_before_stop(self) -> None:
        """A wait with a timeout that is interrupted goes on as restart_syscall, which does not say what it was."""
        self._waits |= self._read_waits([tid for tid in self._states() if _says_nothing(self._waits.get(tid))])

    def _read_waits(self, tids: list[int]) -> dict[int, Wait | None]:
        nothing: dict[int, Wait | None] = {}
        return read_in_time(lambda: {tid: add_peers(read_wait(self.pid, tid)) for tid in tids}, nothing)

    def _recall(self, tid: int, wait: Wait | None) -> Wait | None:
        before = self._waits.get(tid)
        if before is None or wait is None:
            return wait
        wait = compare_peers(before, wait)
        if _says_nothing(wait) and not self._has_changed(tid):
            return before
        is_another_sleep = before.until_s and wait.until_s and before.until_s != wait.until_s
        return replace(wait, target=SLEEPS_AGAIN) if is_another_sleep else wait

    def look_at_locks(self) -> None:
        """Searches memory: not again while all stand where they stood."""
        stacks, waits = tuple(self._list_stacks().values()), dict(self._waits)
        if self._locks_of != (stacks, waits):
            self._locks = read_in_time(lambda: find_locks(self.pid, stacks, waits, self.sources), {}, _LOCKS_S)
            self._locks_of = stacks, waits

    def _states(self) -> dict[int, ThreadState]:
        samples = self._tally.samples
        return {tid: about.state for tid, about in samples[-1].threads.items()} if samples else {}

    def describe(self, has_children: bool = False) -> Iterator[LivingThread]:
        stacks, spied = self._list_stacks(), self._spy.last()
        for tid, state in self._states().items():
            seen, spy = stacks.get(tid), spied.get(tid)
            system_name = self._tally.samples[-1].threads[tid].name
            yield LivingThread(
                tid=tid,
                name=(spy and spy.name) or ("MainThread" if tid == self.pid and spy else system_name),
                state=state,
                cpu_s=self._tally.cpu_s(tid),
                stack=seen.frames if seen else (),
                changed=self._has_changed(tid),
                wait=self._waits.get(tid),
                holds_gil=spy.owns_gil if spy else None,
                locks=self._locks.get(tid, ()),
                tends=tends_children(seen.frames, self.sources) if has_children and seen and tid == self.pid else None,
                moved=self._spy.has_moved(tid),
                runs=self._tally.runs(tid),
            )

    def list_running(self, file: re.Pattern[str]) -> list[int]:
        """Which threads have such a file on their stack."""
        stacks = self._list_stacks().items()
        return [tid for tid, thread in stacks if any(file.search(frame.file or "") for frame in thread.frames)]

    def _list_stacks(self) -> dict[int, CrashThread]:
        """As last seen with native frames; without them, where only that could be had."""
        python = {
            tid: CrashThread(tid, spy.name, False, tuple(frame.place for frame in spy.frames), "py-spy")
            for tid, spy in self._spy.last().items()
        }
        return python | {thread.tid: thread for thread in (self.stacks[-1] if self.stacks else ()) if thread.frames}

    def _has_changed(self, tid: int) -> bool:
        """Two tools describe the same place differently: only what one of them saw twice is compared."""
        seen = [thread for threads in self.stacks for thread in threads if thread.tid == tid]
        differs = len({_strip(thread) for thread in seen}) > len({thread.source for thread in seen})
        return differs or self._spy.has_changed(tid) or (len(self.stacks) == 1 and self._has_left(tid))

    def _has_left(self, tid: int) -> bool:
        """Of a thread that Python does not know, by its place: it was stopped once only."""
        before = self._places.get(tid)
        return tid not in self._spy.last() and before is not None and read_place(self.pid, tid) != before

    def native_hot_spots(self) -> Iterator[HotSpot]:
        """Threads on CPU that Python does not know, by the one or two looks at the stacks; calls that several found."""
        if len(self.stacks) >= _WALKS:
            for tid, frames in self.list_in_call().items():
                for frame in {frame.function: frame for frame in frames}.values():
                    yield HotSpot(frame, len(self.stacks), len(self.stacks), tid)
        samples, python = self._tally.samples, self._spy.last()
        span_s = samples[-1].at_s - samples[0].at_s if samples else 0.0
        seen: dict[tuple[int, CrashFrame], int] = {}
        for threads in self.stacks:
            for thread in threads:
                if thread.frames and thread.tid not in python and self._tally.cpu_s(thread.tid) > _BUSY_SHARE * span_s:
                    seen[thread.tid, thread.frames[0]] = seen.get((thread.tid, thread.frames[0]), 0) + 1
        for (tid, frame), times in seen.items():
            yield HotSpot(frame, times, len(self.stacks), tid)


def _list_called(frames: tuple[CrashFrame, ...]) -> Iterator[CrashFrame]:
    """The interpreter's functions with a name that the innermost Python line has called, in the order of the stack;
    none where it is in another library's."""
    first = next((index for index, frame in enumerate(frames) if frame.kind == "python"), 0)
    own = [frame for frame in frames[:first] if not _C_LIBRARY.search(frame.image or "")]
    if all(PYTHON_FILE.search(frame.image or "") for frame in own):
        yield from (frame for frame in own if frame.function and not frame.function.startswith(_EVALUATES))


def _is_at(thread: CrashThread | None, frame: CrashFrame | None) -> bool:
    """Whether its innermost Python line is this one."""
    lines = [(one.file, one.line) for one in (thread.frames if thread else ()) if one.kind == "python"]
    return frame is None or lines[:1] == [(frame.file, frame.line)]


def _says_nothing(wait: Wait | None) -> bool:
    return wait is None or wait.syscall == "restart_syscall"


def _strip(thread: CrashThread) -> tuple[object, ...]:
    return (thread.source, *((frame.function, frame.file, frame.line, frame.offset) for frame in thread.frames))
