"""The registers and the stack of single threads, each stopped alone for about a tenth of a millisecond. Linux.

PTRACE_SEIZE and PTRACE_INTERRUPT: no signal is sent, nothing stays behind, and the kernel lets the thread go when we
end, whatever we die of. Only a thread that runs, or whose system call comes out the same (thread_calls.py), is stopped;
one in another call, stopped, traced, or in uninterruptible sleep is left alone; `hold_all` does so with every thread,
for a tool that works in the same process. Is to run in a process of its own (stacks.fork_tool), with one thread.
Unwinds nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import marshal
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from harness.capture.stacks.walk.thread_calls import (
    Running,
    find_steady,
    is_done_again,
    name_call,
    read_doing,
    survives_stop,
)

_GETREGSET, _DETACH, _SEIZE, _INTERRUPT = 0x4204, 17, 0x4206, 0x4207  # linux/ptrace.h
_PRSTATUS, _ARM_SYSTEM_CALL = 1, 0x404  # linux/elf.h
_EVENT_STOP = 128
_WALL = 0x40000000
_PDEATHSIG = 1
# struct user_regs_struct and struct user_pt_regs.
_X86_64 = """r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base
ds es fs gs"""
_NAMES = {"x86_64": _X86_64.split(), "aarch64": [*(f"x{number}" for number in range(31)), "sp", "pc", "pstate"]}
_RESULT = {"x86_64": "rax", "aarch64": "x0"}
_STACK = {"x86_64": "rsp", "aarch64": "sp"}
_COUNT = {"x86_64": "rdx", "aarch64": "x2"}
_COUNTED = {"write", "writev", "pwrite64", "sendto", "recvfrom", "sendmsg", "recvmsg"}
# -EINTR, and what the kernel turns into it or into another try: include/linux/errno.h.
_CUT_SHORT = {-errno.EINTR, -512, -513, -514, -516}
_SPIN_S, _NAP_S, _PATIENCE_S, _TRACED_S = 0.002, 0.0001, 0.5, 0.02
_ROUNDS, _PAUSE_S = 8, 0.05
MOST_STACK = 256 << 10


class Held(NamedTuple):
    """What one stop gave. `stack`: from the stack pointer on. `interrupted`: a call that may have come out otherwise.

    That happens when it goes to sleep between the last glance and the stop. `error`: why it was left alone.
    """

    tid: int
    registers: dict[str, int]
    stack: bytes
    stopped_ms: float
    interrupted: str | None = None
    error: str | None = None


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.ptrace.restype = ctypes.c_long
    library.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    return library


def _trace(request: int, tid: int, address: int = 0, data: int = 0) -> None:
    if _library().ptrace(request, tid, address, data) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def print_held(pid: int, tids: Sequence[int], find_end: Callable[[int], int], deadline_s: float) -> None:
    """For stacks.fork_tool; `read_held` reads it. `find_end`: where the mapping ends that holds a stack pointer."""
    end_with_parent(deadline_s)
    with contextlib.suppress(OSError):  # root may: so that nobody comes between a stop and its end
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    held = [tuple(one) for one in hold_threads(pid, tids, find_end, deadline_s * 0.8)]
    with open(1, "wb", closefd=False) as out:
        out.write(marshal.dumps(held))


def read_held(output: bytes) -> list[Held]:
    return [Held(*one) for one in marshal.loads(output)] if output else []


def end_with_parent(deadline_s: float) -> None:
    """Nobody else would end us should our parent be gone; those that we hold go on when we end."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, deadline_s)
    _library().prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def hold_threads(pid: int, tids: Sequence[int], find_end: Callable[[int], int], deadline_s: float) -> Iterator[Held]:
    """One after the other. The first that does not stop in time ends it: only our own end lets that one go for sure."""
    until = time.monotonic() + deadline_s
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    waiting, before = list(tids), Running()
    for _ in range(_ROUNDS):
        steady = find_steady(pid, waiting, before)
        for tid in list(waiting):
            if time.monotonic() > until:
                break
            if not _may_stop(pid, tid, steady.get(tid)):
                continue
            waiting.remove(tid)
            held = _hold_freed(pid, tid, memory, find_end)
            yield held
            if held.error == _LATE:
                return
        if not waiting:
            break
        time.sleep(_PAUSE_S)  # whoever runs and sleeps by turns (for a page, for memory) was not seen to run
    yield from (Held(tid, {}, b"", 0.0, error=_NEVER) for tid in waiting)


_LATE = "it did not stop in time"
_NEVER = "a stop would have changed what its system calls return"


@contextlib.contextmanager
def hold_all(pid: int) -> Iterator[None]:
    """All threads of a process, those too that come meanwhile. A tool's own PTRACE_ATTACH sends SIGSTOP, which stays
    behind if the tool is killed; of this nothing does. OSError: one could not be held, and none is any more.
    """
    held: dict[int, int] = {}
    try:
        while new := [tid for task in Path(f"/proc/{pid}/task").iterdir() if (tid := int(task.name)) not in held]:
            for tid in new:
                held[tid] = _hold_one(pid, tid)
        yield
    finally:
        for tid, signo in held.items():
            with contextlib.suppress(OSError):  # our end will do it
                _let_go(tid, signo)


def _hold_one(pid: int, tid: int) -> int:
    """The signal that it was about to receive."""
    try:
        _trace(_SEIZE, tid)
        begun = _stop(tid)
    except OSError:
        doing = read_doing(pid, tid)
        if doing is not None and doing.state not in "ZX":
            raise
        return 0  # it has ended
    if begun is None:
        raise OSError(errno.ETIMEDOUT, f"thread {tid} did not stop in time")
    return begun[1]


def _may_stop(pid: int, tid: int, slept: int | None) -> bool:
    """`slept`: how often it had, when it was seen to run code of its own; null: it was not seen so."""
    doing = read_doing(pid, tid)
    if doing is None:
        return False
    return doing.switches[0] == slept if doing.runs else doing.state == "S" and survives_stop(pid, tid, doing.call)


def _hold_freed(pid: int, tid: int, memory: int, find_end: Callable[[int], int]) -> Held:
    """Another look may hold it at this moment."""
    until = time.monotonic() + _TRACED_S
    while True:
        try:
            return _hold(pid, tid, memory, find_end)
        except OSError as error:
            if error.errno != errno.EPERM or time.monotonic() > until:
                return Held(tid, {}, b"", 0.0, error=f"ptrace: {error.strerror}")
            time.sleep(_NAP_S)


def _hold(pid: int, tid: int, memory: int, find_end: Callable[[int], int]) -> Held:
    _trace(_SEIZE, tid)
    begun = _stop(tid)
    if begun is None:
        return Held(tid, {}, b"", 0.0, error=_LATE)
    since, signo = begun
    registers, stack = {}, b""
    try:
        registers = _read_registers(tid)
        stack = _read_stack(memory, registers, find_end)
    except OSError as error:
        return Held(tid, {}, b"", 0.0, error=f"ptrace: {error.strerror}")
    finally:
        _let_go(tid, signo)
    stopped_ms = (time.perf_counter() - since) * 1000
    return Held(tid, registers, stack, stopped_ms, _tell_interrupted(pid, tid, registers))


def _let_go(tid: int, signo: int) -> None:
    try:
        _trace(_DETACH, tid, 0, signo)
    except OSError as error:
        if error.errno != errno.ESRCH:  # it was killed
            raise


def _stop(tid: int) -> tuple[float, int] | None:
    """Since when it stands, and the signal that it was about to receive, which is passed on. Null: not in time."""
    _trace(_INTERRUPT, tid)
    begun = since = time.perf_counter()
    while True:
        now = time.perf_counter()
        found, status = os.waitpid(tid, os.WNOHANG | _WALL)
        if found:
            break
        since = now
        if now - begun > _PATIENCE_S:
            return None
        if now - begun < _SPIN_S:
            os.sched_yield()
        else:
            time.sleep(_NAP_S)
    if not os.WIFSTOPPED(status):
        raise OSError(errno.ESRCH, "it has ended")
    return since, 0 if status >> 16 == _EVENT_STOP else os.WSTOPSIG(status)


def _read_registers(tid: int) -> dict[str, int]:
    names = _NAMES[os.uname().machine]
    values = _read_set(tid, _PRSTATUS, 8 * len(names))
    return dict(zip(names, struct.unpack(f"<{len(names)}Q", values), strict=True))


def _read_set(tid: int, kind: int, size: int) -> bytes:
    buffer = ctypes.create_string_buffer(size)
    vector = _Vector(ctypes.addressof(buffer), size)
    _trace(_GETREGSET, tid, kind, ctypes.addressof(vector))
    if vector.length != size:
        raise OSError(errno.EINVAL, "registers of another kind of program")
    return buffer.raw


def _read_stack(memory: int, registers: dict[str, int], find_end: Callable[[int], int]) -> bytes:
    start = registers[_STACK[os.uname().machine]]
    try:
        return os.pread(memory, max(0, min(MOST_STACK, find_end(start) - start)), start)
    except (OSError, OverflowError):
        return b""


def _tell_interrupted(pid: int, tid: int, registers: dict[str, int]) -> str | None:
    """By the registers: what it was in when it stopped. Null: in no call, or in one that is as it would have been."""
    machine = os.uname().machine
    number = registers.get("orig_rax", registers.get("x8", -1)) & 0xFFFFFFFF
    result = _signed(registers[_RESULT[machine]])
    if machine == "x86_64" and _signed(registers["orig_rax"]) < 0:
        return None
    name = name_call(number)
    short = name in _COUNTED and 0 < result < registers[_COUNT[machine]]
    if result not in _CUT_SHORT and not short:
        return None
    arguments = [registers[one] for one in ("rdi", "rsi")] if machine == "x86_64" else [0, registers["x1"]]
    return None if is_done_again(pid, tid, number, arguments) else name


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
