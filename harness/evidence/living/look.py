"""What was seen of living processes during one look: states, stacks, waits, counters, what was printed and not flushed.

Facts only. A look is several samples over some seconds; what differs between them is what moves. Addresses are "0x…"
strings, frames start with the innermost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from harness.errors import Unreadable
from harness.evidence.crash import CrashFrame, Image, ToolRun
from harness.evidence.gap import Gap
from harness.evidence.living.tasks import Tasks
from harness.evidence.living.unflushed import Unflushed
from harness.evidence.openmp import Census

# man 5 proc_pid_stat: R on CPU or wants it, S asleep, D uninterruptible, T stopped, t traced, Z dead and not collected.
ThreadState = Literal["R", "S", "D", "T", "t", "Z", "X", "I"]


class Peer(Struct, frozen=True):
    """A process that could end a wait. `state` null: not to be seen.

    `awaits`: whom all of its threads wait for, without a limit; empty: it runs, or what it waits for is not known.
    `switches`: how often it was scheduled. `still`: not once between two looks at it; null: it was looked at once.
    """

    pid: int
    state: ThreadState | None = None
    awaits: tuple[int, ...] = ()
    switches: int | None = None
    still: bool | None = None


class Wait(Struct, frozen=True):
    """The system call a thread is in. `target`: the file, peer, pipe, pid or lock word that it is about, in words.

    `until_s`: when a sleep ends, by the clock that it names. `alone`: no other process has the other end open. `named`:
    it has a name, by which anybody may still open it (a FIFO).
    """

    syscall: str | None
    arguments: tuple[str, ...] = ()
    fd: int | None = None
    target: str | None = None
    peer_pids: tuple[int, ...] = ()
    wchan: str | None = None
    until_s: float | None = None
    alone: bool = False
    peers: tuple[Peer, ...] = ()
    named: bool = False


# import: a module's import lock; condition: also an event, a barrier, a semaphore; gil: the interpreter's own; mutex:
# of the C library, which names its owner and has no line.
LockKind = Literal["lock", "rlock", "condition", "queue", "join", "import", "gil", "mutex"]


class HeldLock(Struct, frozen=True):
    """A lock that a frame has taken or waits for: the expression in its source, the object if it could be read.

    `owner_tid`: who must act before it can go on: the lock's owner, the thread that is joined. `owner_alive` false: the
    lock names an owner, and no such thread lives. Holding is inferred from the source unless `address` is known.
    `by_with`: a with statement has taken it, and releases it.
    """

    expression: str
    file: str
    line: int
    function: str
    waiting: bool
    address: str | None = None
    owner_tid: int | None = None
    kind: LockKind = "lock"
    owner_alive: bool | None = None
    by_with: bool = False


class Rest(Struct, frozen=True):
    """`together`: all threads were seen in their waits at one and the same moment, for none has run meanwhile.

    `handled_signals`: those with a handler that could let a thread go on; null: could not be read.
    """

    together: bool
    handled_signals: tuple[str, ...] | None = None


class LivingThread(Struct, frozen=True):
    """`stacks`: as first and as last seen, equal when it stood still. `cpu_s`: used during the look. `runs`: how often
    it got the CPU between two samples that found it in uninterruptible sleep; null: there were no two.

    `tends`, of a main thread with children: whether the loop that it sleeps in asks after them, as its source shows.
    `moved`: the Python lines that all samples share, or the objects of their locals, were not always the same; what was
    called on top now and then (a handler of a signal) is none of them. Null: it was seen once at most.
    """

    tid: int
    name: str | None
    state: ThreadState
    cpu_s: float
    stack: tuple[CrashFrame, ...]
    changed: bool
    wait: Wait | None = None
    holds_gil: bool | None = None
    locks: tuple[HeldLock, ...] = ()
    tends: bool | None = None
    moved: bool | None = None
    runs: int | None = None


SLEEPS_AGAIN = "sleeps again and again"  # the target of a wait: two sleeps that end at different times
BY_ENDED = " by threads that have ended"  # ends the name of their counters of kind `io`
FAILED, UNSEEN = "children failed", "children ended, how was not visible"  # counters of kind `ended`
CounterKind = Literal["io", "file", "buffer", "child", "ended", "local", "beat", "device"]


class Counter(Struct, frozen=True):
    """Something that can only rise, as seen at each sample. `kind` local: an integer in a Python frame; child: those
    that ended well; ended: those that did not, or nobody saw how.

    `consumes`, of a local: it is the target of a `for`, or assigned in the body of one, that goes through something
    shown to be finite, by its source or its type; null: the source could not be read, or not believed. `tid`: the
    thread that moved it; null: the process did, which of its threads is not known.
    """

    kind: CounterKind
    name: str
    times_s: tuple[float, ...]
    values: tuple[int, ...]
    frame: CrashFrame | None = None
    consumes: bool | None = None
    tid: int | None = None

    @property
    def rises(self) -> bool:
        return self.values[-1] > self.values[0] and all(
            a <= b for a, b in zip(self.values, self.values[1:], strict=False)
        )


class Unchanged(Struct, frozen=True):
    """Integers that the `while` around this place tests or assigns: the same in so many samples, though it turned.

    `closed`: as its source shows, nothing but its locals decides what it does next; all that it assigns was the same.
    """

    names: tuple[str, ...]
    frame: CrashFrame
    seen: int
    of: int
    closed: bool
    tid: int


class HotSpot(Struct, frozen=True):
    """A Python line or native function, and in how many of the samples a thread was there while on CPU."""

    frame: CrashFrame
    seen: int
    of: int
    tid: int


class Output(Struct, frozen=True):
    """Where a standard stream leads, and since when nothing was written there (file modification), in seconds."""

    fd: int
    kind: Literal["tty", "file", "pipe", "socket", "null", "closed", "other"]
    path: str | None
    size: int | None = None
    quiet_s: float | None = None


class LivingProcess(Struct, frozen=True):
    """`stopped_ms`: how long it stood still for our sake, all tools together. `tracer_pid`: a debugger.

    `major_faults`, `kernel_s` (CPU time in the kernel): during the look. `moving`: integer locals that changed, but did
    not only rise. `interrupted`: system calls that a stop of ours may have cut short (man 7 signal), each
    with its thread, as "recvfrom of thread 17 (MainThread), by pystack"; empty: none.
    `stopped_at_times`: it was found stopped or traced, and ran during the look all the same, or another look held it.
    `tasks`: of asyncio, where a thread runs a loop. `fleeting_threads`: how many were not there at each sample.
    """

    pid: int
    ppid: int
    name: str
    argv: tuple[str, ...]
    executable: str | None
    python: str | None
    state: ThreadState
    age_s: float
    rank: str | None = None
    role: Literal["main", "worker", "child"] = "main"
    tracer_pid: int | None = None
    frozen: bool = False
    rss_bytes: int | None = None
    swap_bytes: int | None = None
    major_faults: int = 0
    kernel_s: float = 0.0
    threads: tuple[LivingThread, ...] = ()
    counters: tuple[Counter, ...] = ()
    hot: tuple[HotSpot, ...] = ()
    outputs: tuple[Output, ...] = ()
    unflushed: tuple[Unflushed, ...] = ()
    openmp: Census | None = None
    images: tuple[Image, ...] = ()
    children: tuple[int, ...] = ()
    parent_threads: int | None = None
    forked: bool | None = None
    tools: tuple[ToolRun, ...] = ()
    stopped_ms: float = 0.0
    ended: str | None = None
    gaps: tuple[Gap, ...] = ()
    moving: tuple[Counter, ...] = ()
    host: str | None = None
    interrupted: tuple[str, ...] = ()
    stopped_at_times: bool = False
    tasks: Tasks | None = None
    rest: Rest | None = None
    unchanged: tuple[Unchanged, ...] = ()
    fleeting_threads: int = 0


class Look(Struct, frozen=True):
    """One look at the processes that were asked for and those below them. `targets`: the ones asked for.

    `host`: null for this machine; `address`: how one of its processes is named to harness, with {pid} in it.
    `elsewhere`: the ranks that looks at other hosts have seen at the same time.
    """

    harness: str
    platform: str
    started: str
    looked_s: float
    samples: int
    targets: tuple[int, ...]
    processes: tuple[LivingProcess, ...]
    gaps: tuple[Gap, ...] = ()
    host: str | None = None
    address: str = "{pid}"
    elsewhere: tuple[LivingProcess, ...] = ()


_HEX = re.compile(r"0x[0-9a-f]{1,16}")


def check_look(look: Look) -> None:
    """What its types do not say and every reader of a look relies on. Unreadable: it was made up, or is torn."""
    pids = [process.pid for process in look.processes]
    if not look.targets or not {*look.targets} <= {*pids} or len({*pids}) < len(pids):
        raise Unreadable("its targets are not among its processes, or one process is there twice")
    for process in (*look.processes, *look.elsewhere):
        if not all(_HEX.fullmatch(word) for word in _list_addresses(process)):
            raise Unreadable(f"process {process.pid}: an address that is none")
        counters = (*process.counters, *process.moving)
        if not all(counter.values and len(counter.values) == len(counter.times_s) for counter in counters):
            raise Unreadable(f"process {process.pid}: a counter without values, or without their times")


def _list_addresses(process: LivingProcess) -> Iterator[str]:
    """Those that are computed with."""
    for image in process.images:
        yield from (image.base, image.end)
    for thread in process.threads:
        yield from thread.wait.arguments if thread.wait else ()
        yield from (word for frame in thread.stack for word in (frame.address, frame.offset) if word is not None)


def make_counter(
    kind: CounterKind,
    name: str,
    seen: Sequence[tuple[float, int]],
    frame: CrashFrame | None = None,
    tid: int | None = None,
) -> Counter:
    """`seen`: (time, value)."""
    times_s, values = tuple(round(at_s, 3) for at_s, _ in seen), tuple(value for _, value in seen)
    return Counter(kind, name, times_s, values, frame, tid=tid)
