"""One process while it is looked at: what was seen of it at each moment, put together at the end.

It asks the tools and keeps what they say; when to ask is decided in look.py. Whatever stops the process is measured,
and is not used on one that is stopped, traced, frozen, dead or in uninterruptible sleep.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from harness.capture.files.images import list_images, read_maps
from harness.capture.files.owners import name_owners
from harness.capture.living.counters.process import Tally
from harness.capture.living.holding import Holding
from harness.capture.living.identity import (
    find_role,
    is_forked,
    is_frozen,
    read_identity,
    read_in_time,
    read_outputs,
    why_not_stop,
)
from harness.capture.living.source.lengths import has_end
from harness.capture.living.source.loops import mark_consuming
from harness.capture.living.source.unchanged import find_unchanged
from harness.capture.living.tasks.pending import LOOP_FILE, Reading, read_tasks
from harness.capture.living.tasks.wakers import Trace
from harness.capture.living.threads import Standing
from harness.capture.living.unflushed import Buffers
from harness.capture.living.waits.descriptors import name_process
from harness.capture.openmp.live_census import complete
from harness.capture.openmp.live_images import look_while_held
from harness.capture.proc import Status, age_s, open_pidfd, read_exit, read_stat, read_status
from harness.capture.stacks.py_spy import ENOUGH, Spy
from harness.capture.stacks.quiet_ladder import Native
from harness.evidence.crash import Image
from harness.evidence.gap import Gap
from harness.evidence.living.look import Counter, LivingProcess, ThreadState, make_counter
from harness.evidence.living.tasks import Tasks
from harness.evidence.living.unflushed import Unflushed
from harness.evidence.openmp import Census
from harness.evidence.run import name_signal

MANY_THREADS = 128  # to stop them all takes a tenth of a second, and to unwind them seconds
_NEVER_TTY = ("file", "pipe", "socket", "other")
_YOUNG_S = 1.0
_TASKS_S = 6.0
_TASKS_AHEAD_S = (1.0, 0.3)


class Followed:
    """`parent`: among those followed. OSError when there is no such process."""

    def __init__(self, pid: int, parent: Followed | None, *, is_target: bool, native: Native = "auto") -> None:
        self.pid, self._parent = pid, parent
        self.first = self.last = read_stat(pid)
        self._above = parent.identity if parent else read_identity(self.first.ppid)
        self._is_target = is_target
        self._identify()
        self.tally, self.spy, self.buffers = Tally(pid), Spy(pid), Buffers(pid)
        self.standing = Standing(pid, self.tally, self.spy, native)
        self.images: tuple[Image, ...] = ()
        self.unflushed: tuple[Unflushed, ...] = ()
        self.spy_due_s = self.buffers_due_s = 0.0
        self.has_waits = False
        self._holding = Holding(pid)
        self._refused = why_not_stop(pid)
        self._buffers: dict[int, list[tuple[float, int]]] = {}
        self._gaps: dict[str, Gap] = {}
        self._census: Census | None = None
        self._tasks: Tasks | None = None
        self._tasks_before: Mapping[int, Trace] | None = None
        self._children: tuple[int, ...] = ()
        self._pidfd = open_pidfd(pid)
        self.ended = self._tell_zombie() if is_target and self.first.state in "ZX" else None
        self._was_young = age_s(self.first.started_s) < _YOUNG_S and not is_target

    def _identify(self) -> None:
        self.identity = read_identity(self.pid)
        self.forked = is_forked(self.identity, self._above)
        self.role: Literal["main", "worker", "child"] = (
            "main" if self._is_target else find_role(self.identity, self._above)
        )

    def close(self) -> None:
        self.buffers.close()
        self.tally.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    @property
    def is_there(self) -> bool:
        return self.ended is None and self.last.state not in "ZX"

    @property
    def has_python(self) -> bool:
        return self.identity.python is not None and self.is_there

    @property
    def may_be_spied(self) -> bool:
        return self.has_python and self.spy.works

    def sample(self, at_s: float, children: dict[int, ThreadState]) -> None:
        """The cheap part. One that has ended, or runs another program now, is noted."""
        if self.ended is not None:
            return
        self._children = tuple(sorted(children))
        sample = read_in_time(lambda: self.tally.take(at_s, children), None)
        if sample is None or sample.stat.started_s != self.first.started_s:
            self._note_end(at_s)
            return
        before, self.last = self.last.state, sample.stat
        self._holding.note(sample.stat.state in "Tt" or all(one.state in "Tt" for one in sample.threads.values()))
        if sample.stat.state in "ZX" and before not in "ZX":
            self._note_end(at_s)
        elif self.identity.loaded_at and self._loaded_at() not in (None, b"", self.identity.loaded_at):
            self._note_exec(at_s)

    def _loaded_at(self) -> bytes | None:
        return read_in_time(lambda: Path(f"/proc/{self.pid}/auxv").read_bytes(), None)

    def _note_exec(self, at_s: float) -> None:
        """A new process is for a moment what its parent is."""
        program = read_identity(self.pid)
        if self._was_young:
            self._identify()
        else:
            self.ended = f"it became another program after {at_s:.1f} s: {' '.join(program.argv) or program.executable}"

    def _note_end(self, at_s: float) -> None:
        status = read_exit(self._pidfd, self.pid)[0] if self._pidfd is not None else None
        if status is None and Path(f"/proc/{self.pid}/stat").exists() and read_stat(self.pid).state not in "ZX":
            self._gaps["samples"] = Gap(
                "samples of /proc", f"process {self.pid} did not let them be read within a second"
            )
            return
        self.ended = f"it ended after {at_s:.1f} s, {_describe_status(status)}"

    def _tell_zombie(self) -> str:
        status = read_exit(self._pidfd, self.pid)[0] if self._pidfd is not None else None
        parent = name_process(self.first.ppid, Path("/proc"))
        return f"it is a zombie, {_describe_status(status)}; its parent, process {parent}, has not collected it"

    def look_at_python(self, at_s: float, deadline_s: float) -> None:
        if self.may_be_spied:
            self.spy.sample(at_s, deadline_s)

    def look_at_stacks(self, deadline_s: float) -> None:
        self.standing.look_before_stop()
        self._refused = why_not_stop(self.pid)
        if self._refused is None:
            self.standing.look_at_stacks(self.identity.python, deadline_s)
        else:
            self.standing.skip_stacks(self._refused)

    def look_into_calls(self, deadline_s: float) -> None:
        if self.has_python and why_not_stop(self.pid) is None:
            self.standing.look_into_calls(self.identity.python, deadline_s)

    def look_at_waits(self) -> None:
        self.has_waits = True
        self.standing.look_at_waits()
        if self.has_python and not self.is_fine:
            self.standing.look_at_locks()

    def look_ahead_at_tasks(self) -> None:
        """How they stand, to see at the end whether they have moved. Briefly, and once."""
        tids = self.standing.list_running(LOOP_FILE) if self.has_python and self._tasks_before is None else []
        if tids:
            read = partial(read_tasks, self.pid, self.identity.version, tids, search_s=_TASKS_AHEAD_S)
            self._tasks_before = read_in_time(read, Reading(None, None), _TASKS_S).standing or {}

    def look_at_tasks(self) -> None:
        """Of asyncio, where a thread runs a loop: memory is searched for them."""
        tids = self.standing.list_running(LOOP_FILE) if self.has_python else []
        if tids:
            unread = Reading(None, Gap("asyncio tasks", "they could not be read in time"))
            read = partial(read_tasks, self.pid, self.identity.version, tids, before=self._tasks_before)
            self._tasks, gap, _ = read_in_time(read, unread, _TASKS_S)
            self._gaps |= {"tasks": gap} if gap else {}

    def start_buffers(self, *, always: bool = False) -> None:
        """What was printed and not flushed. On a terminal every line is flushed, and only the end is asked for."""
        leads = {output.fd: output.kind for output in read_outputs(self.pid)}
        if self.has_python and (always or leads.get(1) in _NEVER_TTY or leads.get(2) in _NEVER_TTY):
            self.buffers.start()

    def collect_buffers(self, at_s: float, deadline_s: float) -> None:
        self.unflushed, gap = self.buffers.collect(deadline_s)
        self._gaps.pop("unflushed", None)
        if gap is not None:
            self._gaps["unflushed"] = gap
        for fd in {stream.fd for stream in self.unflushed}:
            size = sum(stream.bytes for stream in self.unflushed if stream.fd == fd)
            self._buffers.setdefault(fd, []).append((at_s, size))

    def skip_buffers(self, why: str) -> None:
        self._gaps["unflushed"] = Gap("output not flushed", why)

    def look_at_images(self) -> None:
        """What is loaded, whose it is, and the OpenMP among it. A fork without exec has its parent's."""
        if not self.has_python:
            return
        try:
            rows = read_maps(self.pid)
            if self.forked and self._parent and self._parent.images:
                self.images = tuple(_inherit(list_images(rows), self._parent.images))
                return
            sighting = look_while_held(self.pid, rows)
            self.images = name_owners(list_images(rows), self.identity.executable)
            self._census = complete(sighting, () if sighting.root else self.images)
        except (OSError, ValueError, LookupError) as error:
            self._gaps["images"] = Gap("loaded images and OpenMP runtimes", f"{type(error).__name__}: {error}")

    @property
    def has_few_samples(self) -> bool:
        """Also where one more would tell whether what rose at last has risen."""
        return self.may_be_spied and self.spy.is_unsure

    def note_few_samples(self) -> None:
        if self.may_be_spied and len(self.spy.sightings) < ENOUGH:
            why = f"its Python lines could be read {len(self.spy.sightings)} times only, and {ENOUGH} are needed"
            self._gaps["locals"] = Gap("integers that rise", why, f"harness attach {self.pid} --for 10")

    @property
    def is_fine(self) -> bool:
        """Its main thread moved something outside: another look at the stacks would add nothing."""
        moved = {
            counter.tid
            for counter in self._counters()
            if counter.kind in ("file", "buffer", "beat") or (counter.kind, counter.name) == ("io", "bytes written")
            if counter.rises
        }
        runs = self.tally.cpu_s(self.pid) > 0 or self.spy.has_changed(self.pid)
        return self.pid in moved or (None in moved and runs)

    def _counters(self) -> Iterator[Counter]:
        yield from self.tally.counters()
        for fd, seen in sorted(self._buffers.items()):
            yield make_counter("buffer", "unflushed " + {1: "stdout", 2: "stderr"}.get(fd, f"fd {fd}"), seen)

    def _has_end(self, counter: Counter, name: str) -> bool:
        """Whether a local of the counter's frame is something that comes to an end."""
        address = self.spy.find_object(counter, name)
        threaded = "free-threaded" in (self.identity.version or "")
        return address is not None and read_in_time(lambda: has_end(self.pid, address, free_threaded=threaded), False)

    def describe(self, device: tuple[Counter, ...] = ()) -> LivingProcess:
        rising, moving = self.spy.locals()
        status = _read_status(self.pid)
        runs = (*self.standing.tools, self.spy.run)
        return LivingProcess(
            pid=self.pid,
            ppid=self.last.ppid,
            name=self.last.name,
            argv=self.identity.argv,
            executable=self.identity.executable,
            python=self.identity.version or ("unknown" if self.identity.python else None),
            state=self.last.state,
            age_s=round(age_s(self.first.started_s), 1),
            rank=self.identity.rank,
            role=self.role,
            tracer_pid=status and status.tracer_pid,
            stopped_at_times=self._holding.is_at_times,
            frozen=is_frozen(self.pid),
            rss_bytes=self.last.rss_bytes,
            swap_bytes=status and status.swap_bytes,
            major_faults=self.tally.major_faults,
            kernel_s=self.tally.kernel_s,
            threads=tuple(self.standing.describe(bool(self._children))),
            counters=(*self._counters(), *mark_consuming(rising, self.standing.sources, self._has_end), *device),
            moving=tuple(moving),
            unchanged=find_unchanged(self.spy.sightings, self.standing.sources),
            hot=(*self.spy.hot_spots(), *self.standing.native_hot_spots()),
            outputs=read_in_time(lambda: read_outputs(self.pid), ()) if self.is_there else (),
            unflushed=self.unflushed,
            openmp=self._census,
            images=self.images,
            children=self._children,
            parent_threads=_count_threads(self.last.ppid),
            forked=self.forked,
            tools=tuple(run for run in runs if run is not None),
            interrupted=self.standing.interrupted,
            stopped_ms=round(self.standing.stopped_ms, 1),
            ended=self.ended,
            tasks=self._tasks,
            fleeting_threads=self.tally.fleeting_threads,
            rest=self.standing.rest,
            gaps=tuple(gap for gap in (self.standing.gap, *self._gaps.values()) if gap),
        )


def _inherit(images: tuple[Image, ...], parents: tuple[Image, ...]) -> Iterator[Image]:
    known = {(image.path, image.base): image for image in parents}
    return (known.get((image.path, image.base), image) for image in images)


def _read_status(pid: int) -> Status | None:
    with contextlib.suppress(OSError):
        return read_status(pid)
    return None


def _count_threads(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        return read_stat(pid).threads
    return None


def _describe_status(status: int | None) -> str:
    if status is None:
        return "its status is not visible to us"
    code = os.waitstatus_to_exitcode(status)
    return f"exit status {code}" if code >= 0 else f"killed by {name_signal(-code)}"
