"""What a Linux core file says by itself, with no debugger: threads, registers, signal, mapped files, memory.

Reads program headers, notes and single pages, never the whole; man 5 core, linux/elfcore.h. x86_64 and aarch64.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from harness.capture.files.formats.content import Content, open_content, unpack
from harness.capture.files.formats.elf import MACHINES, Elf, Segment
from harness.capture.files.images import Row
from harness.errors import Unreadable

_ET_CORE, _PT_LOAD, _PT_NOTE = 4, 1, 4
_NT_PRSTATUS, _NT_PRPSINFO, _NT_AUXV, _NT_FILE, _NT_SIGINFO = 1, 3, 6, 0x46494C45, 0x53494749
_AT_RANDOM, _AT_EXECFN = 25, 31
_MOST_NOTES_BYTES = 256 * 1024**2  # 4 kB for each thread
_MANY = 0xFFFF
_LONGEST_PATH = 4096
# struct elf_prstatus up to pr_reg is the same on both: signal number at 12, pid at 32, registers at 112.
_CURSIG, _PID, _REGISTERS = 12, 32, 112
# In the order of struct user_regs_struct.
_NAMES = {
    "x86_64": [
        "r15",
        "r14",
        "r13",
        "r12",
        "rbp",
        "rbx",
        "r11",
        "r10",
        "r9",
        "r8",
        "rax",
        "rcx",
        "rdx",
        "rsi",
        "rdi",
        "orig_rax",
        "rip",
        "cs",
        "eflags",
        "rsp",
        "ss",
        "fs_base",
        "gs_base",
    ],
    "aarch64": [*(f"x{number}" for number in range(31)), "sp", "pc", "pstate"],
}
_PC = {"x86_64": "rip", "aarch64": "pc"}
_SP = {"x86_64": "rsp", "aarch64": "sp"}


class BadCore(Unreadable):
    """One sentence on what is wrong with the file."""


class CoreThread(NamedTuple):
    tid: int
    signo: int
    registers: dict[str, int]


class SigInfo(NamedTuple):
    """`address`: of a fault; for a signal that was sent, the same bytes are the sender's pid."""

    signo: int
    code: int
    address: int
    sender_pid: int


class CoreFile:
    """Open until `close`. The first thread is the one that got the signal."""

    def __init__(self, path: Path) -> None:
        """BadCore: not a core, of another processor, or cut off before its notes."""
        self.path = path
        try:
            self._content: Content = open_content(path)
        except OSError as error:
            raise BadCore(f"it cannot be read: {error.strerror}") from error
        try:
            self._read()
        except (ValueError, struct.error) as error:
            self.close()
            raise error if isinstance(error, BadCore) else BadCore(f"it is damaged or cut off: {error}") from error

    def _read(self) -> None:
        if self._content.size_bytes == 0:
            raise BadCore("it is empty: the limit or the disk did not allow a byte")
        head = self._content.read(0, 64)
        if head[:6] != b"\x7fELF\x02\x01":
            raise BadCore("it is not a 64-bit ELF file")
        kind, machine = unpack("<HH", head, 16)
        if kind != _ET_CORE:
            raise BadCore("it is an ELF file, but not a core")
        self.machine = MACHINES.get(machine, f"machine {machine}")
        if self.machine not in _NAMES:
            raise BadCore(f"it is a core of {self.machine}, which harness does not read")
        if unpack("<H", head, 56)[0] == _MANY:
            raise BadCore("it has more than 65,534 mappings")
        with Elf(self.path) as elf:
            segments = elf.segments
        self.loads = sorted((s for s in segments if s.kind == _PT_LOAD), key=lambda s: s.address)
        self._starts = [load.address for load in self.loads]
        self.threads: list[CoreThread] = []
        self.siginfo: SigInfo | None = None
        self.files: list[Row] = []
        self.pid: int | None = None
        self.name = ""
        self._auxiliary: dict[int, int] = {}
        for kind, body in self._notes(segments):
            self._take_note(kind, body)
        if not self.threads:
            raise BadCore("it names no thread: it was cut off before its notes")

    def __enter__(self) -> CoreFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._content.close()

    def _notes(self, segments: list[Segment]) -> Iterator[tuple[int, bytes]]:
        for segment in segments:
            if segment.kind != _PT_NOTE:
                continue
            if segment.file_bytes > _MOST_NOTES_BYTES:
                raise BadCore(f"its notes claim to be {segment.file_bytes:,} bytes long")
            data = self._content.read(segment.offset, segment.file_bytes)
            at = 0
            while at + 12 <= len(data):
                name_bytes, body_bytes, kind = unpack("<III", data, at)
                body_at = at + 12 + (name_bytes + 3 & ~3)
                at = body_at + (body_bytes + 3 & ~3)
                if at > len(data) + 3:
                    raise BadCore("a note in it is longer than all of them")
                yield kind, data[body_at : body_at + body_bytes]

    def _take_note(self, kind: int, body: bytes) -> None:
        if kind == _NT_PRSTATUS:
            names = _NAMES[self.machine]
            values = unpack(f"<{len(names)}Q", body, _REGISTERS)
            (signo,) = unpack("<H", body, _CURSIG)
            (tid,) = unpack("<i", body, _PID)
            self.threads.append(CoreThread(tid, signo, dict(zip(names, values, strict=True))))
        elif kind == _NT_SIGINFO and self.siginfo is None:
            self.siginfo = read_siginfo(body)
        elif kind == _NT_FILE:
            self.files = _read_files(body)
        elif kind == _NT_PRPSINFO:
            (self.pid,) = unpack("<i", body, 24)
            self.name = body[40:56].partition(b"\0")[0].decode(errors="replace")
        elif kind == _NT_AUXV:
            pairs = struct.iter_unpack("<QQ", body[: len(body) // 16 * 16])
            self._auxiliary = dict(pairs)

    @property
    def crashed(self) -> CoreThread:
        return self.threads[0]

    def pc_of(self, thread: CoreThread) -> int:
        return thread.registers[_PC[self.machine]]

    def sp_of(self, thread: CoreThread) -> int:
        return thread.registers[_SP[self.machine]]

    @property
    def missing_bytes(self) -> int:
        """How much of the memory it lists lies beyond its own end: the size limit or a full disk cut it off."""
        end = max((load.offset + load.file_bytes for load in self.loads), default=0)
        return max(0, end - self._content.size_bytes)

    @cached_property
    def executable(self) -> str | None:
        """By the name it was started with, when that is one of the mapped files; else the lowest one with code."""
        name = self._text(self._auxiliary.get(_AT_EXECFN, 0))
        paths = list(dict.fromkeys(row.path for row in self.rows if "x" in row.permissions and row.path[:1] == "/"))
        if name in paths:
            return name
        same = [path for path in paths if name and Path(path).name == Path(name).name]
        entry = self._auxiliary.get(9)  # AT_ENTRY
        holder = next((row.path for row in self.rows if entry and row.start <= entry < row.end), None)
        return holder or next(iter([*same, *paths]), None)

    @cached_property
    def rows(self) -> list[Row]:
        """As /proc/PID/maps would have shown them; the permissions are the program headers'."""
        named = {row.start: row for row in self.files}
        stack = self._auxiliary.get(_AT_RANDOM, 0)
        rows = []
        for load in self.loads:
            end = load.address + load.memory_bytes
            permissions = (
                "".join(letter if load.flags & bit else "-" for letter, bit in zip("rwx", (4, 2, 1), strict=True)) + "p"
            )
            known = named.get(load.address) or self._file_at(load.address)
            path = known.path if known else "[stack]" if load.address <= stack < end else ""
            offset = known.offset + load.address - known.start if known else 0
            rows.append(Row(load.address, end, permissions, offset, (path if known else "", 0), path))
        return rows

    def _file_at(self, address: int) -> Row | None:
        return next((row for row in self.files if row.start <= address < row.end), None)

    def read(self, address: int, size: int) -> bytes:
        """What the core has of it; what it left out because a file has it comes from that file. May be short."""
        parts: list[bytes] = []
        while size > 0:
            at = bisect_right(self._starts, address) - 1
            if at < 0 or address >= self.loads[at].address + self.loads[at].memory_bytes:
                break
            load = self.loads[at]
            inside = address - load.address
            count = min(size, load.memory_bytes - inside)
            if inside < load.file_bytes:
                count = min(count, load.file_bytes - inside)
                piece = self._read_at(load.offset + inside, count)
            else:
                piece = self._read_mapped_file(address, count)
            parts.append(piece)
            if len(piece) < count:
                break
            address, size = address + count, size - count
        return b"".join(parts)

    def _read_at(self, position: int, count: int) -> bytes:
        count = min(count, max(0, self._content.size_bytes - position))
        try:
            return self._content.read(position, count)
        except ValueError:
            return b""

    def _read_mapped_file(self, address: int, count: int) -> bytes:
        row = self._file_at(address)
        if row is None:
            return b""
        try:
            with Path(row.path).open("rb") as file:
                file.seek(row.offset + address - row.start)
                return file.read(min(count, row.end - address))
        except OSError:
            return b""

    def _text(self, address: int) -> str:
        return self.read(address, _LONGEST_PATH).partition(b"\0")[0].decode(errors="replace") if address else ""


def read_siginfo(data: bytes) -> SigInfo:
    """The first 24 bytes of a siginfo_t: number, errno, code, padding, then the union."""
    signo, _, code = unpack("<iii", data, 0)
    (address,) = unpack("<Q", data, 16)
    (sender,) = unpack("<i", data, 16)
    return SigInfo(signo, code, address, sender)


def _read_files(body: bytes) -> list[Row]:
    """NT_FILE: count, page size, (start, end, page offset) of each, then their names."""
    count, page = unpack("<QQ", body, 0)
    if count > len(body) // 24:
        raise BadCore("its list of mapped files is longer than its note")
    names = body[16 + 24 * count :].split(b"\0")
    rows = []
    for number in range(min(count, len(names))):
        start, end, offset = unpack("<QQQ", body, 16 + 24 * number)
        path = names[number].decode("utf-8", "surrogateescape")
        rows.append(Row(start, end, "", offset * page, (path, 0), path))
    return rows
