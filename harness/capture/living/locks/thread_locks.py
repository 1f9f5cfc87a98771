"""Which locks the threads of a Python process hold and wait for, and who owns them where that can be known. Linux.

Puts three things together: the stacks and waits that others took, what the source says of their lines (lock_lines.py),
and the lock objects behind the lock words (lock_objects.py). Finds no cycle: that is a judgement. What is not known is
absent. A plain Lock has no owner to read: unless the `with` that holds it is found in a thread's frames, its holder is
what the source says.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from harness.capture.living.locks.lock_objects import LockObject, read_lock_objects
from harness.capture.living.locks.mutexes import find_mutexes
from harness.capture.living.source.lock_lines import Sources
from harness.capture.stacks.cpython.gil import find_runtime_states
from harness.evidence.crash import CrashFrame, CrashThread
from harness.evidence.living.look import HeldLock, LockKind, Wait

# In which C functions a thread is that waits for a lock of Python's.
_ACQUIRING = {
    "PyThread_acquire_lock",
    "PyThread_acquire_lock_timed",
    "PyThread_acquire_lock_timed_with_retries",
    "acquire_timed",
    "lock_PyThread_acquire_lock",
    "rlock_acquire",
    "_PyMutex_LockSlow",
    "_PyMutex_LockTimed",
    "PyMutex_Lock",
    "_PyParkingLot_Park",
    "_PySemaphore_Wait",
    "PyEvent_Wait",
    "PyEvent_WaitTimed",
    "ThreadHandle_join",
    "_multiprocessing_SemLock_acquire",
    "_multiprocessing_SemLock_acquire_impl",
}
# Its lock is a word of the queue's own.
_SIMPLE_QUEUE = {"_queue_SimpleQueue_get", "_queue_SimpleQueue_get_impl", "simplequeue_get"}
_FUTEX_PRIVATE = 0x80
_TAKING_GIL = "take_gil"
_IMPORTING = "<frozen importlib._bootstrap>"
# The standard library's own frames: whose line matters is who called them.
_BELOW_THE_CALLER = (
    "/threading.py",
    "/queue.py",
    "/multiprocessing/synchronize.py",
    "/multiprocessing/queues.py",
    "/concurrent/futures/_base.py",
    "/importlib/__init__.py",
    _IMPORTING,
    "<frozen importlib._bootstrap_external>",
)
_JOINING = {"join", "_join", "_wait_for_tstate_lock", "_shutdown"}
_WAITING = {"wait", "wait_for", "_wait"}
_LOADING = {"_find_and_load", "_load_unlocked", "_find_and_load_unlocked"}


class _Standing(NamedTuple):
    """Where a thread waits for a lock: the frame of whoever called the library."""

    frame: CrashFrame
    kind: LockKind


def find_locks(
    pid: int, stacks: Sequence[CrashThread], waits: Mapping[int, Wait | None], sources: Sources | None = None
) -> dict[int, tuple[HeldLock, ...]]:
    """By thread id: what it holds, the outermost first, then what it waits for. Threads without either are absent."""
    sources, runtimes = sources or Sources(pid), find_runtime_states(pid)
    wants_gil = {tid for tid, wait in waits.items() if any((_lock_word(wait) or 0) in state for state in runtimes)}
    standing = {
        thread.tid: where
        for thread in stacks
        if (where := _find_standing(thread, waits, sources, thread.tid in wants_gil))
    }
    joining = {tid for tid, where in standing.items() if where.kind == "join"}
    acquiring = {tid for tid, where in standing.items() if where.kind in ("lock", "rlock")}
    words = {tid: word for tid in joining | acquiring if (word := _lock_word(waits.get(tid)))}
    objects = read_lock_objects(pid, words, joining, acquiring)
    awaited = {tid: _describe_awaited(where, sources, objects.get(tid)) for tid, where in standing.items()}
    found = {thread.tid: _list_held(thread.frames, sources, standing.get(thread.tid)) for thread in stacks}
    for tid, held in found.items():
        _identify(held, [one for one in awaited.values() if one.owner_tid == tid and one.kind in ("lock", "rlock")])
        held.extend([awaited[tid]] if tid in awaited else [])
    for tid, lock in _list_unseen(pid, waits, wants_gil):
        if not any(one.waiting for one in found.get(tid, ())):
            found.setdefault(tid, []).append(lock)
    return {tid: tuple(held) for tid, held in found.items() if held}


def _list_unseen(pid: int, waits: Mapping[int, Wait | None], wants_gil: set[int]) -> Iterator[tuple[int, HeldLock]]:
    """What no line of Python tells: a mutex of the C library, the GIL that a thread without Python asks for."""
    yield from find_mutexes(pid, waits).items()
    for tid in wants_gil:
        yield tid, HeldLock("the GIL", "", 0, "", waiting=True, kind="gil")


def _find_standing(
    thread: CrashThread, waits: Mapping[int, Wait | None], sources: Sources, wants_gil: bool
) -> _Standing | None:
    """Its C functions tell; where they have no names, the futex (`wants_gil`) and the source must."""
    frames = thread.frames
    inner = {frame.function for frame in itertools.takewhile(lambda frame: frame.kind == "native", frames)}
    pythons = [frame for frame in frames if frame.kind == "python"]
    if not pythons or not _may_wait(thread.tid, waits, bool(inner & {*_ACQUIRING, _TAKING_GIL})):
        return None
    if wants_gil or _TAKING_GIL in inner:
        return _Standing(pythons[0], "gil")
    below = tuple(itertools.takewhile(_is_below, pythons))[: len(pythons) - 1]
    frame = pythons[len(below)]
    if not inner & _ACQUIRING and (inner - {None} or not _ask_source(sources, frame)):
        return None
    if inner & _SIMPLE_QUEUE:
        return _Standing(frame, "queue")
    return _Standing(frame, _name_kind((*below, frame) if _is_below(frame) else below, inner))


def _may_wait(tid: int, waits: Mapping[int, Wait | None], acquiring: bool) -> bool:
    """Where the system call cannot be seen, or was just interrupted by those who took the stack, the stack decides."""
    wait = waits.get(tid)
    if wait is None:
        return acquiring or tid not in waits
    return wait.syscall is None or wait.syscall.startswith("futex") or wait.syscall == "restart_syscall"


def _is_below(frame: CrashFrame) -> bool:
    return (frame.file or "").endswith(_BELOW_THE_CALLER)


def _name_kind(below: Sequence[CrashFrame], inner: set[str | None]) -> LockKind:
    functions = {frame.function for frame in below}
    if any(frame.file == _IMPORTING for frame in below):
        return "import"
    if any((frame.file or "").endswith("queue.py") for frame in below):
        return "queue"
    if functions & _JOINING:
        return "join"
    if functions & _WAITING:
        return "condition"
    return "rlock" if "rlock_acquire" in inner else "lock"


def _lock_word(wait: Wait | None) -> int | None:
    """The futex, if it is this process's own: one shared with others is no object of Python's."""
    if wait is None or wait.syscall != "futex" or not int(wait.arguments[1], 16) & _FUTEX_PRIVATE:
        return None
    return int(wait.arguments[0], 16)


def _describe_awaited(where: _Standing, sources: Sources, found: LockObject | None) -> HeldLock:
    frame = where.frame
    expression = "the GIL" if where.kind == "gil" else _ask_source(sources, frame)
    lock = HeldLock(
        expression=expression or sources.find_text(frame.file or "", frame.line or 0) or "a lock",
        file=frame.file or "",
        line=frame.line or 0,
        function=_short_name(frame),
        waiting=True,
        kind=where.kind,
    )
    if found is None:
        return lock
    kind = found.kind if where.kind in ("lock", "rlock") else where.kind
    return replace(
        lock, address=hex(found.address), kind=kind, owner_tid=found.owner_tid, owner_alive=found.owner_alive
    )


def _ask_source(sources: Sources, frame: CrashFrame) -> str | None:
    return sources.find_awaited(frame.file or "", frame.line or 0, _short_name(frame))


def _short_name(frame: CrashFrame) -> str:
    return (frame.function or "").rpartition(".")[2]


def _list_held(frames: Sequence[CrashFrame], sources: Sources, where: _Standing | None) -> list[HeldLock]:
    """The outermost first."""
    pythons = [frame for frame in frames if frame.kind == "python"]
    held: list[HeldLock] = []
    for inner, frame in zip([None, *pythons], pythons, strict=False):
        if not _is_below(frame):
            waits_here = where is not None and frame is where.frame
            found = _list_held_in(frame, inner, sources)
            held[:0] = [one for one in found if not (waits_here and one.line == frame.line)]  # with x: …, on one line
    return held + _list_imports(pythons, sources, where)


def _list_held_in(frame: CrashFrame, inner: CrashFrame | None, sources: Sources) -> list[HeldLock]:
    file, line, function = frame.file or "", frame.line or 0, _short_name(frame)
    found = sources.find_held(file, line, function)
    if inner is not None and _is_below(inner) and inner.function in _WAITING:
        released = _ask_source(sources, frame) or ""  # Condition.wait() lets its lock go
        found = [one for one in found if not released.startswith(f"{one.expression}.")]
    return [HeldLock(one.expression, file, one.line, function, waiting=False, by_with=one.by_with) for one in found]


def _list_imports(pythons: Sequence[CrashFrame], sources: Sources, where: _Standing | None) -> list[HeldLock]:
    """A module's import lock is held while its code runs, and by nobody who is still asking for it."""
    held = []
    for inner, frame in itertools.pairwise(pythons):
        loads = inner.file == _IMPORTING and inner.function in _LOADING and not _is_below(frame)
        if loads and (where is None or frame is not where.frame):
            text = _ask_source(sources, frame)
            if text and text.startswith("import "):
                line, function = frame.line or 0, _short_name(frame)
                held.append(HeldLock(text, frame.file or "", line, function, waiting=False, kind="import"))
    return held


def _identify(held: list[HeldLock], owned: Iterable[HeldLock]) -> None:
    """`owned`: what others wait for and this thread has. The only one it holds of that name, or at all, is the same."""
    for lock in {one.address: one for one in owned}.values():
        free = [at for at, one in enumerate(held) if one.address is None and one.kind == "lock"]
        named = [at for at in free if _last_name(held[at]) == _last_name(lock)]
        if len(named or free) == 1:
            at = (named or free)[0]
            held[at] = replace(
                held[at], address=lock.address, kind=lock.kind, owner_tid=lock.owner_tid, owner_alive=lock.owner_alive
            )


def _last_name(lock: HeldLock) -> str:
    return lock.expression.rpartition(".")[2]
