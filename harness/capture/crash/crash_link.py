"""The supervisor's end of the crash link: a socket on which a dying process reports, and waits to be looked at.

Takes the record and the snapshot, lets go, and decides nothing. See native/crash.c for the other end.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness import native
from harness.capture.crash.peer import read_peer
from harness.capture.crash.stale_directories import remove_leftovers
from harness.capture.machine.refusals import REFUSED, explain
from harness.evidence.case import make_private_directories

if TYPE_CHECKING:
    from harness.capture.crash.snapshot import Snapshot

# A dying process waits 3 s for us (native/link.h), counted from its fault; the look itself must be over before.
HELD_DEADLINE_S = 2.5
_RECEIVE_DEADLINE_S = 0.5
# In a storm only the first crashes get a full look; each of the others would have to wait for them.
FULL_LOOKS = 4
_BACKLOG = 512
_LONGEST_SOCKET = 107 if sys.platform == "linux" else 103  # sun_path, man 7 unix
LONGEST_INSTRUCTION = 15  # bytes, of x86_64
# With one of these a core would tell little more.
# By machine, in the order of native/crash.c (REG_* of <sys/ucontext.h>; x0-x30).
_X86_64 = (
    "r8 r9 r10 r11 r12 r13 r14 r15 rdi rsi rbp rbx rdx rax rcx rsp rip eflags csgsfs err trapno oldmask cr2".split()  # noqa: SIM905
)
_REGISTERS = {1: _X86_64, 2: [*(f"x{number}" for number in range(31)), "sp", "pc", "pstate"]}
_MODULES = ("pystack.engine", "harness.capture.files.guards", "harness.capture.crash.snapshot")
STEPS_ENOUGH = frozenset({"native-all", "native"})


class Report(NamedTuple):
    """One crash as it was reported, and what was seen while the process stood still; `code`: the bytes at pc."""

    record: Any
    at_s: float
    held_s: float
    seen: Snapshot
    complete: bool = False
    code: bytes = b""


class Unseen(NamedTuple):
    """One that could not be looked at."""

    record: Any
    at_s: float
    held_s: float
    why: str


class Link:
    """Listens in a private directory; the path is what the command gets as HARNESS_LINK."""

    def __init__(self, modules: Iterable[str] = (), needs_no_core: Callable[[int], None] = lambda pid: None) -> None:
        """`modules` will be needed after the look; `needs_no_core` is told of one that was seen well."""
        self.needs_no_core = needs_no_core
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self.path = _bind(self._socket)
        self.directory = self.path.parent
        self._socket.listen(_BACKLOG)
        self.reports: list[Report] = []
        self._unseen: list[Unseen] = []
        self._modules = iter((*_MODULES, *modules))

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> tuple[socket.socket, int] | None:
        """A connection and the pid behind it; strangers are turned away."""
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return None
        peer = read_peer(connection)
        if peer is None or peer.uid != os.getuid():
            connection.close()
            return None
        return connection, peer.pid

    def take_report(self, connection: socket.socket, pid: int, started_ns: int) -> list[int]:
        """Receives, looks, lets go. The process goes on when the connection closes, whatever happened here.

        Returns the pids of the tools that were used: they are ours, not the command's.
        """
        with contextlib.closing(connection):
            record = self.receive(connection, pid)
            return self.look(record, started_ns) if record is not None and is_crash(record) else []

    def receive(self, connection: socket.socket, pid: int) -> Any | None:
        """What the process says: a crash, and it waits; who asks it to leave; how it leaves. Null: not our library."""
        record = _receive(connection)
        return record if record is not None and record.pid == pid else None

    def look(self, record: Any, started_ns: int) -> list[int]:
        """At one that waits; returns the pids of the tools.

        It crashed when it says so: on a loaded machine its parent may have failed before we heard of it.
        """
        begun, full = time.monotonic(), len(self.reports) < FULL_LOOKS
        at_s = (record.time_ns - started_ns) / 1e9
        try:
            seen, code = _look(record, full)
        except REFUSED as error:  # what it said itself is worth a report
            self._unseen.append(Unseen(record, at_s, time.monotonic() - begun, explain(error)))
            return []
        if seen.step in STEPS_ENOUGH or not full:
            self.needs_no_core(record.pid)
        self.reports.append(Report(record, at_s, time.monotonic() - begun, seen, code=code))
        return [tool.pid for tool in seen.tools if tool.pid is not None]

    def work(self) -> bool:
        """Uses idle time; whether there is more to do.

        What a look needs is loaded before the first crash, so that the process stands still for less long; owners and
        names are found while the kernel takes the dead process down, which needs 0.1 s for each GiB. One module at a
        time: all of them take seconds on a loaded machine, and a dying process waits no longer than that.
        """
        for name in self._modules:
            with contextlib.suppress(*REFUSED):  # an engine may not be installed: who asks it says so
                importlib.import_module(name)
            return True
        from harness.capture.crash import snapshot

        for index, report in enumerate(self.reports):
            if not report.complete:
                self.reports[index] = report._replace(seen=snapshot.complete(report.seen), complete=True)
                return True
        return False

    def list_reports(self) -> list[Report]:
        """All of them, in the order in which they crashed."""
        from harness.capture.crash.snapshot import nothing_seen

        for one in self._unseen:
            seen = nothing_seen(one.record.pid, one.why)
            self.reports.append(Report(one.record, one.at_s, one.held_s, seen, complete=True))
        self._unseen.clear()
        self.reports.sort(key=lambda report: report.at_s)
        return self.reports

    def close(self) -> None:
        remove_leftovers(self.directory.parent)
        with contextlib.suppress(OSError):  # it may be gone already
            self._socket.close()
            for entry in self.directory.iterdir():
                entry.unlink()
            self.directory.rmdir()


def _bind(listener: socket.socket) -> Path:
    """Where it can be bound: a folder may be missing or full, or its name longer than a socket's may be."""
    refused: OSError | None = None
    for directory in make_private_directories("harness"):
        try:
            listener.bind(str(directory / "link"))
        except OSError as error:
            refused = refused or error
            continue
        return directory / "link"
    raise refused or OSError(errno.ENOENT, "no temporary folder can be written to")


def was_refused(folder: Path, link: Path) -> bool:
    """Whether `folder` was passed over for what is wrong with it, not for the length of its path."""
    if link.parent.parent == folder.absolute():
        return False
    path = folder.absolute() / link.relative_to(link.parent.parent)
    return len(os.fsencode(path)) <= _LONGEST_SOCKET or not os.access(folder, os.W_OK | os.X_OK)


def _look(record: Any, full: bool) -> tuple[Snapshot, bytes]:
    from harness.capture.crash.snapshot import look_while_held
    from harness.capture.files.guards import show_guard
    from harness.capture.stacks.frames import read_memory

    code = read_memory(record.pid)(record.pc, LONGEST_INSTRUCTION)
    deadline_s = max(0.0, HELD_DEADLINE_S - (time.monotonic_ns() - record.time_ns) / 1e9) if full else 0.0
    seen = look_while_held(record.pid, deadline_s, tid=record.tid, registers=read_registers(record))
    return seen._replace(mappings=show_guard(record.pid, seen.mappings, record.address)), code


def read_registers(record: Any) -> dict[str, int]:
    return {name: record.registers[index] for index, name in enumerate(_REGISTERS[record.machine])}


def is_crash(record: Any) -> bool:
    return _is(record, "harness_crash")


def is_leave(record: Any) -> bool:
    return _is(record, "harness_leave")


def is_ending(record: Any) -> bool:
    return _is(record, "harness_ending")


def _is(record: Any, name: str) -> bool:
    ffi, _ = native.load()
    return bool(ffi.typeof(record) is ffi.typeof(f"struct {name} *"))


def _receive(connection: socket.socket) -> Any | None:
    """The record, or null for anything else: what is on the other end is not trusted to be our library."""
    ffi, lib = native.load()
    connection.settimeout(_RECEIVE_DEADLINE_S)
    head = _receive_bytes(connection, 8)
    abi, size = struct.unpack("II", head) if len(head) == 8 else (0, 0)
    for name in ("struct harness_crash", "struct harness_leave", "struct harness_ending"):
        if (abi, size) == (lib.HARNESS_ABI, ffi.sizeof(name)):
            data = head + _receive_bytes(connection, size - len(head))
            if len(data) == size:
                record = ffi.new(f"{name} *")
                ffi.memmove(record, data, size)
                return record if not is_crash(record) or _is_possible(record) else None
    return None


def _is_possible(crash: Any) -> bool:
    """What it counts it has, and it has happened already: by that time is counted how long it may be looked at."""
    return (
        crash.machine in _REGISTERS
        and 0 <= crash.frame_count <= len(crash.frames)
        and 0 < crash.signo < signal.NSIG
        and crash.time_ns <= time.monotonic_ns()
    )


def _receive_bytes(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    with contextlib.suppress(OSError):
        while len(data) < size and (part := connection.recv(size - len(data))):
            data += part
    return bytes(data)
