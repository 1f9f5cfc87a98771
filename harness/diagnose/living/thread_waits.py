"""What one thread of a living process is doing: in which wait, for whom, at which Python line; and the words for it.

Waits are recognised by frames and system calls. Whether a wait is a fault is decided in `stuck` and `alive`.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from typing import NamedTuple

from harness.diagnose.frames import innermost_user_frame, is_openmp_function, list_python_frames
from harness.diagnose.plumbing import (
    INHERITED_NAME,
    image_name,
    is_interpreter,
    is_plumbing,
    plain_function,
    shorten_function,
    symbol_of,
)
from harness.diagnose.words import cut_items, name_some
from harness.documents.verdict import Frame
from harness.evidence.crash import CrashFrame
from harness.evidence.living.look import HeldLock, LivingProcess, LivingThread, LockKind, Wait

# CPython waits for a lock without a limit in sem_wait, with one in these.
_TIMED = re.compile(r"_*(?:new_)?sem_(?:clock|timed)wait\w*|_*pthread_cond_(?:clock|timed)wait\w*")
_GIL = re.compile(r"take_gil|_?PyEval_(?:RestoreThread|AcquireThread)|_PyThreadState_Attach")
# To wait for a thread's end the C library shares its futex with the kernel, which wakes it.
_THREAD_END = re.compile(r"_*pthread_(?:join|timedjoin_np|clockjoin_np|(?:clock|timed)join_ex)")
_FUTEX_PRIVATE = 0x80
_SHARED = "shared with other processes"
_ALLOCATOR = re.compile(
    r"malloc|free|realloc|calloc|posix_memalign|_int_(?:malloc|free)|arena_get\w*|tcache_init|malloc_consolidate"
)
_LOW_LOCK = re.compile(r"__lll_lock_wait\w*|futex_wait|lll_lock_wait\w*")
_IMPORT_WAITS = frozenset({"acquire", "__enter__", "_lock_unlock_module", "_get_module_lock"})
_IMPORTING = frozenset({"_load_unlocked", "_find_and_load_unlocked", "exec_module"})
_IMPORTLIB = "importlib._bootstrap"
_CONDITION_WAITS = frozenset({"wait", "wait_for", "_wait_for_tstate_lock", "join"})

_DEVICE = re.compile(
    r"\bcu(?:Ctx|Stream|Event|Graph)\w*Synchronize\w*|\bcuda\w*Synchronize\w*|\bcu(?:da)?Memcpy\w*|\bhip\w*Synchronize\b"
    r"|\bhipMemcpy\w*|\bcuda(?:Event|Stream)Query\w*|\bwaitUntil(?:Completed|Scheduled)\b"
)
_DEVICE_IMAGE = re.compile(
    r"libcuda\.so.*|libcudart[.-].*|libamdhip64\..*|libhsa-runtime.*|Metal|AGXMetal\w*|IOGPU|libnvidia-.*"
)
_DEVICE_FILE = re.compile(r"/dev/(?:nvidia|kfd|dri/)")
_COLLECTIVE = re.compile(r"\b(?:c10d|gloo)::|\bp?nccl[A-Z]\w+|\bP?MPI_[A-Z]\w+|\b(?:ompi|opal)_\w+|\bMPID\w+")
_COLLECTIVE_WAIT = re.compile(r"c10d::.*(?:Work\w*|Reducer)::(?:wait|synchronize\w*|finalize_backward)")
_COLLECTIVE_FILE = re.compile(r"/torch/distributed/distributed_c10d\.py$")
_LIBRARIES = (("gloo", re.compile(r"gloo", re.I)), ("NCCL", re.compile(r"nccl", re.I)), ("MPI", re.compile(r"\bP?MPI")))

WRITES = re.compile(r"p?write(?:v2?|64)?|send(?:to|msg|mmsg|file)|splice")
READS = re.compile(r"p?read(?:v2?|64)?|recv(?:from|msg|mmsg)|p?poll|p?select6?|epoll_p?wait2?")
FILE_LOCKS = re.compile(r"flock|fcntl")
_IO = re.compile(
    rf"{WRITES.pattern}|{FILE_LOCKS.pattern}|p?read(?:v2?|64)?|recv(?:from|msg|mmsg)|connect|open(?:at2?)?"
    r"|f(?:data)?sync|sync(?:fs)?|close|l?stat|newfstatat|statx|getdents(?:64)?"
)
# A terminal waits for a person; timers and events are what a server sleeps on.
_IDLE_TARGET = re.compile(r"/dev/(?:pts/|tty|console)|anon_inode")
_SOCKET_CALL = re.compile(r"sock_(?:recv|send|connect)\w*|_ssl__SSLSocket_\w+")
_LONGEST_TARGET = 200


class Holder(NamedTuple):
    """Who has a lock. `inferred`: from the source alone, not from the lock. `thread` null: that thread has ended."""

    tid: int
    thread: LivingThread | None
    inferred: bool
    held: HeldLock | None


# The place of a thread


def python_frames(thread: LivingThread) -> tuple[Frame, ...]:
    """Innermost first. What stands below the start of a forked worker is its parent's history, not its own."""
    frames = list_python_frames(thread.stack)
    for index, frame in enumerate(frames):
        if frame.function == "_bootstrap" and frame.file.endswith("/multiprocessing/process.py"):
            return frames[: index + 1]
    return frames


def user_frame(thread: LivingThread) -> Frame | None:
    return innermost_user_frame(python_frames(thread))


def natives_above(thread: LivingThread) -> tuple[CrashFrame, ...]:
    """The native frames that the innermost Python frame has called; all of them where there is no Python."""
    first = next((index for index, frame in enumerate(thread.stack) if frame.kind == "python"), len(thread.stack))
    return thread.stack[:first]


def name_thread(process: LivingProcess, thread: LivingThread) -> str:
    if thread.tid == process.pid:
        return "MainThread"
    if thread.name and not INHERITED_NAME.fullmatch(thread.name):
        return thread.name
    return f"thread {thread.tid}"


def main_thread(process: LivingProcess) -> LivingThread | None:
    return next((thread for thread in process.threads if thread.tid == process.pid), None)


def tell_place(thread: LivingThread) -> str:
    """The user's line if there is one, else the innermost Python line, else the native function."""
    frames = python_frames(thread)
    if frames:
        return (innermost_user_frame(frames) or frames[0]).place
    return tell_native(thread) or "an unknown place"


def tell_native(thread: LivingThread) -> str | None:
    """The innermost native function that says something; how the interpreter and libc wait does not."""
    frames = natives_above(thread)
    telling = [frame for frame in frames if not is_plumbing(frame) and not is_interpreter(frame.image)]
    others = frames if not python_frames(thread) else ()
    frame = next(iter([*telling, *others]), None)
    return name_function(frame) if frame else None


def name_function(frame: CrashFrame) -> str:
    symbol, image = symbol_of(frame), image_name(frame.image)
    function = shorten_function(symbol) if symbol else f"+{frame.offset or '?'}"
    return f"{function} ({image})" if image else function


def _has_function(thread: LivingThread, pattern: re.Pattern[str]) -> bool:
    return any(pattern.fullmatch(plain_function(frame) or "") for frame in natives_above(thread))


# Waits inside the process


def is_timed(thread: LivingThread) -> bool:
    """It will wake up by itself: the call says so; where it could not be seen, the C function."""
    told = _has_timeout(thread.wait)
    return _has_function(thread, _TIMED) if told is None else told


def _has_timeout(wait: Wait | None) -> bool | None:
    """man 2 futex; futex_wait(address, value, mask, flags, timeout, clock). Null: it is another call, or not seen."""
    at = {"futex": 3, "futex_wait": 4}.get((wait and wait.syscall) or "")
    if wait is None or at is None or len(wait.arguments) <= at:
        return None
    return int(wait.arguments[at], 16) != 0


def sleeps_for_own(thread: LivingThread) -> bool:
    """In a futex that only a thread of the same process can wake, and without a timeout."""
    if _has_timeout(thread.wait) is not False or thread.wait is None:
        return False
    at = 1 if thread.wait.syscall == "futex" else 3
    private = int(thread.wait.arguments[at], 16) & _FUTEX_PRIVATE
    return bool(private) or (_has_function(thread, _THREAD_END) and _SHARED not in (thread.wait.target or ""))


def thread_end_wanted(thread: LivingThread) -> int | None:
    """Which thread a pthread_join() waits for: its id is what the shared futex has until it ends."""
    wait = thread.wait
    if wait is None or wait.syscall != "futex" or len(wait.arguments) < 3 or _SHARED in (wait.target or ""):
        return None
    operation, value = (int(word, 16) for word in wait.arguments[1:3])
    return value if not operation & _FUTEX_PRIVATE and value > 1 else None


def wants_gil(thread: LivingThread) -> bool:
    asked = any(lock.waiting and lock.kind == "gil" for lock in thread.locks)
    return (asked or _has_function(thread, _GIL)) and not thread.holds_gil


def waits_for_thread(thread: LivingThread) -> bool:
    """In Condition.wait, Event.wait or Thread.join: somebody else has to say something, no lock is in the way."""
    frames = python_frames(thread)
    return bool(frames) and frames[0].file.endswith("/threading.py") and frames[0].function in _CONDITION_WAITS


def joins_thread(thread: LivingThread) -> bool:
    frames = python_frames(thread)[:2]
    return any(frame.file.endswith("/threading.py") and frame.function == "join" for frame in frames)


def waits_for_import(thread: LivingThread) -> bool:
    frames = python_frames(thread)
    return bool(frames) and _IMPORTLIB in frames[0].file and frames[0].function in _IMPORT_WAITS


def is_importing(thread: LivingThread) -> bool:
    return any(_IMPORTLIB in frame.file and frame.function in _IMPORTING for frame in python_frames(thread))


def owner_wanted(thread: LivingThread, kind: LockKind) -> int | None:
    """The thread that it joins, or that imports the module it waits for, where that could be read."""
    return next((lock.owner_tid for lock in thread.locks if lock.waiting and lock.kind == kind), None)


def has_dead_owner(process: LivingProcess, lock: HeldLock) -> bool:
    gone = lock.owner_tid is not None and all(lock.owner_tid != thread.tid for thread in process.threads)
    return lock.owner_alive is False or gone


def lock_wanted(thread: LivingThread) -> HeldLock | None:
    """The lock of this process that it waits for, with no end of its own. multiprocessing's locks belong to many."""
    frames = python_frames(thread)
    if waits_for_thread(thread) or is_timed(thread) or (frames and "/multiprocessing/" in frames[0].file):
        return None
    return next((lock for lock in thread.locks if lock.waiting and lock.kind in ("lock", "rlock")), None)


def mutex_wanted(thread: LivingThread) -> HeldLock | None:
    wanted = next((lock for lock in thread.locks if lock.waiting and lock.kind == "mutex"), None)
    return None if wanted is None or is_timed(thread) else wanted


def find_holders(process: LivingProcess, wanted: HeldLock) -> list[Holder]:
    """By the owner that the lock names, by its address, else by the same expression in the same file."""
    threads = {thread.tid: thread for thread in process.threads}
    held = [(thread, lock) for thread in process.threads for lock in thread.locks if not lock.waiting]
    if wanted.owner_tid is not None:
        owner = threads.get(wanted.owner_tid)
        taken = next((lock for thread, lock in held if thread is owner and is_same_lock(lock, wanted)), None)
        return [Holder(wanted.owner_tid, owner, False, taken)]
    return [
        Holder(thread.tid, thread, wanted.address is None or lock.address is None, lock)
        for thread, lock in held
        if is_same_lock(lock, wanted)
    ]


def is_same_lock(lock: HeldLock, other: HeldLock) -> bool:
    """`self.lock` of two objects are two locks: such a name proves nothing without an address."""
    if lock.address is not None and other.address is not None:
        return lock.address == other.address
    by_name = not lock.expression.startswith(("self.", "cls."))
    return by_name and (lock.expression, lock.file) == (other.expression, other.file)


def find_gomp(thread: LivingThread, runtimes: frozenset[str]) -> CrashFrame | None:
    """A frame in GNU's runtime: by its functions, by the census, or by the file's name where neither is there."""
    for frame in natives_above(thread):
        function = plain_function(frame) or ""
        named = is_openmp_function(frame) and function.startswith(("GOMP_", "gomp_"))
        if named or (frame.image is not None and frame.image in runtimes) or "libgomp" in image_name(frame.image):
            return frame
    return None


def waits_in_allocator(thread: LivingThread) -> bool:
    return _has_function(thread, _ALLOCATOR) and _has_function(thread, _LOW_LOCK)


# Waits for somebody outside


def find_device(thread: LivingThread) -> CrashFrame | None:
    """The driver's own function; a thread without Python only if it says that it synchronises."""
    frames = natives_above(thread)
    named = next((frame for frame in frames if _DEVICE.search(frame.function or "")), None)
    if named is not None or not python_frames(thread):
        return named
    return next((frame for frame in frames if _DEVICE_IMAGE.fullmatch(image_name(frame.image))), None)


def waits_for_device_file(thread: LivingThread) -> bool:
    wait = thread.wait
    return wait is not None and wait.syscall == "ioctl" and _DEVICE_FILE.match(wait.target or "") is not None


def is_collective(thread: LivingThread) -> bool:
    """It waits for the other ranks. The libraries' own service threads have no Python, and wait for nobody."""
    symbols = [frame.function or "" for frame in natives_above(thread)]
    frames = python_frames(thread)
    if not frames:
        return any(_COLLECTIVE_WAIT.search(symbol) for symbol in symbols)
    return any(_COLLECTIVE.search(symbol) for symbol in symbols) or bool(_COLLECTIVE_FILE.search(frames[0].file))


def find_collective_frame(thread: LivingThread) -> CrashFrame | None:
    return next((frame for frame in natives_above(thread) if _COLLECTIVE.search(frame.function or "")), None)


def name_collective_library(process: LivingProcess, thread: LivingThread) -> str:
    """By the waiting thread, else by any: torch lets its own threads do the talking, and names them."""
    for threads in ((thread,), process.threads):
        symbols = [frame.function or "" for other in threads for frame in other.stack]
        text = " ".join([*symbols, *(other.name or "" for other in threads)])
        if found := next((name for name, pattern in _LIBRARIES if pattern.search(text)), None):
            return found
    return "torch.distributed"


def find_io(thread: LivingThread) -> Wait | None:
    """The system call, if somebody outside has to answer it; not where a server or a prompt sleeps."""
    wait = thread.wait
    if wait is None:
        return Wait(None) if thread.state == "D" else None
    if thread.state == "D":
        return wait
    if _IDLE_TARGET.search(wait.target or ""):
        return None
    polls_socket = wait.syscall in ("poll", "ppoll") and _has_function(thread, _SOCKET_CALL)
    return wait if polls_socket or _IO.fullmatch(wait.syscall or "") else None


# Words


def tell_target(wait: Wait) -> str:
    """ "reads from pipe:[33] (read, fd 5)" """
    call = ", ".join([wait.syscall or "in the kernel", *([f"fd {wait.fd}"] if wait.fd is not None else [])])
    if not wait.target:
        return f"{call} ({wait.wchan})" if wait.wchan else call
    named = not wait.peer_pids or any(str(pid) in wait.target for pid in wait.peer_pids)
    verb = "held by" if FILE_LOCKS.fullmatch(wait.syscall or "") else "at its other end"
    peers = "" if named else f", {verb} process {name_some([str(pid) for pid in wait.peer_pids], 4)}"
    return f"{cut_items(wait.target, _LONGEST_TARGET)}{peers} ({call})"


def tell_wanted(thread: LivingThread) -> str | None:
    """ "in jobs.get()", "for cache_lock" """
    wanted = next((lock.expression for lock in thread.locks if lock.waiting), None)
    if wanted is None:
        return None
    return f"in {wanted}" if wanted.endswith(")") or "(" in wanted else f"for {wanted}"


def tell_lock(process: LivingProcess, lock: HeldLock) -> str:
    holders = find_holders(process, lock)
    if has_dead_owner(process, lock):
        return f"waits for {lock.expression}, whose owner has ended"
    if not holders:
        return f"waits for {lock.expression}, holder not known"
    return f"waits for {lock.expression}, {' and '.join(tell_holder(process, holder) for holder in holders[:3])}"


def tell_holder(process: LivingProcess, holder: Holder) -> str:
    inferred = " (inferred from the source)" if holder.inferred else ""
    return f"held by {name_thread(process, holder.thread) if holder.thread else holder.tid}{inferred}"


def describe_threads(process: LivingProcess) -> list[str]:
    """One line each: who, where, native function, system call, lock and holder. Equal threads share a line."""
    python: dict[str, list[LivingThread]] = {}
    for thread in process.threads:
        if python_frames(thread):
            python.setdefault(_describe(process, thread), []).append(thread)
    lines = [f"{_tell_threads(process, threads)}: {text}" for text, threads in python.items()]
    others = Tally(_describe(process, thread) for thread in process.threads if not python_frames(thread))
    lines += [f"{count} thread{'s' * (count != 1)} without Python: {text}" for text, count in others.most_common()]
    return lines


def _tell_threads(process: LivingProcess, threads: list[LivingThread]) -> str:
    first = f"{name_thread(process, threads[0])} ({threads[0].tid})"
    return first if len(threads) == 1 else f"{len(threads)} threads, the first {first}"


def _describe(process: LivingProcess, thread: LivingThread) -> str:
    doing = {"R": "on CPU", "D": "in uninterruptible sleep", "T": "stopped", "t": "held by a tracer", "Z": "dead"}
    parts = [f"{doing.get(thread.state, 'asleep')} in {tell_place(thread)}"]
    native = tell_native(thread) if python_frames(thread) else None
    parts += [native] if native else []
    lock, wait = lock_wanted(thread), thread.wait
    if wait and wait.syscall and not (lock and wait.syscall.startswith("futex")):  # a lock's name says more
        parts.append(tell_target(wait))
    if lock:
        parts.append(tell_lock(process, lock))
    elif waits_for_import(thread):
        parts.append("waits for the import lock of a module")
    if thread.holds_gil:
        parts.append("has the GIL")
    elif wants_gil(thread):
        parts.append("waits for the GIL")
    return " · ".join(parts)
