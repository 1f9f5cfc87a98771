"""The Python stacks of a process, read from its memory while it runs on: for builds that py-spy cannot read. Linux.

From 3.13, free-threaded builds too, by the table that the interpreter has for debuggers (runtime_tables.py). Answers
as `py-spy dump --json --locals` does, but of variables only integers. Stops nothing: a thread that runs is seen at a
line it was on, and is left out where what was read does not fit together. Sees no native frames, and no names of
threads but the kernel's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.capture.proc import read_state
from harness.capture.stacks.cpython.gil import find_runtime_states
from harness.capture.stacks.cpython.runtime_tables import Read, Tables, read_tables

_PROC = Path("/proc")
_MOST_FRAMES, _MOST_THREADS, _MOST_LOCALS = 4096, 2048, 64
_LONGEST_TEXT = 4096
_TAG_BITS = 3  # from 3.14 a reference on a frame has its two lowest bits for itself
_NO_INTERPRETER = "no CPython from 3.13 to 3.15 was found in its memory"


class _Torn(Exception):
    """The thread went on while it was read."""


class _Runtime:
    """The interpreter of one process."""

    def __init__(self, read: Read, tables: Tables, start: int) -> None:
        self._read, self._at, self._start = read, tables.offsets, start
        self.free_threaded, self.minor = tables.free_threaded, tables.minor
        self._codes: dict[int, tuple[str, str, int, bytes, tuple[str, ...]]] = {}
        self._kinds: dict[int, bytes] = {}

    def _bytes(self, address: int, size: int) -> bytes:
        data = self._read(address, size)
        if len(data) != size:
            raise _Torn
        return data

    def _word(self, address: int) -> int:
        return int.from_bytes(self._bytes(address, 8), "little")

    def _field(self, address: int, name: str) -> int:
        return self._word(address + self._at[name])

    def list_interpreters(self) -> Iterator[int]:
        interpreter = self._field(self._start, "runtime_state.interpreters_head")
        for _ in range(64):
            if not interpreter:
                return
            yield interpreter
            interpreter = self._field(interpreter, "interpreter_state.next")

    def list_threads(self) -> Iterator[int]:
        for interpreter in self.list_interpreters():
            thread = self._field(interpreter, "interpreter_state.threads_head")
            for _ in range(_MOST_THREADS):
                if not thread:
                    break
                yield thread
                thread = self._field(thread, "thread_state.next")

    def has_gil(self) -> bool:
        """Of the main interpreter; a free-threaded build can have it switched on (PYTHON_GIL=1, an old extension)."""
        gil = self._field(next(self.list_interpreters()), "interpreter_state.ceval_gil")
        return self._bytes(gil + self._at["interpreter_state.gil_runtime_state_enabled"], 4) != bytes(4)

    def read_tid(self, thread: int) -> int:
        return self._field(thread, "thread_state.native_thread_id")

    def list_frames(self, thread: int, with_locals: bool) -> Iterator[dict[str, Any]]:
        """Innermost first. Around those that one call into the interpreter runs it has put a frame of nobody's code."""
        frame = self._field(thread, "thread_state.current_frame")
        told: dict[str, Any] = {}
        for _ in range(_MOST_FRAMES):
            if not frame:
                return
            code = self._field(frame, "interpreter_frame.executable") & ~_TAG_BITS
            if self._name_kind(code) == b"code":
                told = self._describe(frame, code, with_locals)
                yield told
            else:
                told["is_entry"] = True
            frame = self._field(frame, "interpreter_frame.previous")
        raise _Torn

    def _describe(self, frame: int, code: int, with_locals: bool) -> dict[str, Any]:
        if code not in self._codes:
            self._codes[code] = self._read_code(code)
        name, file, first_line, table, variables = self._codes[code]
        offset = self._field(frame, "interpreter_frame.instr_ptr") - self._find_bytecode(frame, code)
        told: dict[str, Any] = {"name": name, "filename": file, "line": find_line(table, first_line, offset)}
        told["is_entry"] = False
        if with_locals:
            told["locals"] = list(self._list_integers(frame, variables))
        return told

    def _read_code(self, code: int) -> tuple[str, str, int, bytes, tuple[str, ...]]:
        table = self._field(code, "code_object.linetable")
        size = min(self._field(table, "bytes_object.ob_size"), 1 << 20)
        names = self._field(code, "code_object.localsplusnames")
        count = min(self._field(names, "tuple_object.ob_size"), _MOST_LOCALS)
        items = names + self._at["tuple_object.ob_item"]
        return (
            self._text(self._field(code, "code_object.qualname")),
            self._text(self._field(code, "code_object.filename")),
            int.from_bytes(self._bytes(code + self._at["code_object.firstlineno"], 4), "little"),
            self._bytes(table + self._at["bytes_object.ob_sval"], size),
            tuple(self._text(self._word(items + 8 * index)) for index in range(count)),
        )

    def _find_bytecode(self, frame: int, code: int) -> int:
        """Threads of a free-threaded build may each have a copy of their own (3.14)."""
        if not (self.free_threaded and self.minor >= 14):
            return code + self._at["code_object.co_code_adaptive"]
        index = self._bytes(frame + self._at["interpreter_frame.tlbc_index"], 4)
        copies = self._field(code, "code_object.co_tlbc")
        return self._word(copies + 8 + 8 * int.from_bytes(index, "little"))

    def _name_kind(self, address: int) -> bytes:
        kind = self._field(address, "pyobject.ob_type")
        if kind not in self._kinds:
            name = self._read(self._field(kind, "type_object.tp_name"), 32)
            self._kinds[kind] = name.partition(b"\0")[0]
        return self._kinds[kind]

    def _text(self, address: int) -> str:
        """Of a compact str; its kind, and whether it is ASCII, are bits of its state."""
        state = self._bytes(address + self._at["unicode_object.state"], 4)
        bits = state[1] if self.free_threaded and self.minor >= 14 else state[0] >> 2
        length = min(self._field(address, "unicode_object.length"), _LONGEST_TEXT)
        head = self._at["unicode_object.asciiobject_size"] + (0 if bits & 16 else 16)
        width = bits & 7
        if self._name_kind(address) != b"str" or not bits & 8 or width not in (1, 2, 4):
            raise _Torn
        encoding = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[width]
        return self._bytes(address + head, length * width).decode(encoding, "replace")

    def _list_integers(self, frame: int, variables: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        start = frame + self._at["interpreter_frame.localsplus"]
        for index, name in enumerate(variables):
            value = self._word(start + 8 * index) & ~_TAG_BITS
            if value and self._name_kind(value) == b"int" and (number := self._integer(value)) is not None:
                yield {"name": name, "addr": value, "repr": str(number)}

    def _integer(self, address: int) -> int | None:
        """lv_tag: the number of digits, and in the two lowest bits the sign; a digit has 30 bits. Null: a large one."""
        tag = self._field(address, "long_object.lv_tag")
        if tag >> 3 > 2:
            return None
        data = self._bytes(address + self._at["long_object.ob_digit"], 4 * (tag >> 3))
        digits = (int.from_bytes(data[at : at + 4], "little") << 30 * (at // 4) for at in range(0, len(data), 4))
        return sum(digits) * (1 - (tag & 3))


def find_line(table: bytes, first_line: int, offset: int) -> int:
    """Of the instruction at this offset; the format is in Objects/locations.md (PEP 657)."""
    line, reached, at = first_line, 0, 0
    while at < len(table):
        kind, reached = table[at] >> 3 & 15, reached + 2 * ((table[at] & 7) + 1)
        at += 1
        if kind in (13, 14):
            value, shift = 0, 0
            while True:
                value |= (table[at + shift // 6] & 63) << shift
                shift += 6
                if not table[at + shift // 6 - 1] & 64:
                    break
            line += -(value >> 1) if value & 1 else value >> 1
        elif kind in (10, 11, 12):
            line += kind - 10
        if offset < reached:
            return line
        while at < len(table) and not table[at] & 128:  # only the first byte of an entry has the highest bit
            at += 1
    return line


def open_runtime(pid: int, proc: Path = _PROC) -> tuple[_Runtime, int] | None:
    """And the descriptor of its memory, which the caller closes."""
    for state in find_runtime_states(pid, proc):
        memory = os.open(proc / str(pid) / "mem", os.O_RDONLY | os.O_CLOEXEC)
        tables = read_tables(read_through(memory), state.start)
        if tables is not None:
            return _Runtime(read_through(memory), tables, state.start), memory
        os.close(memory)
    return None


def read_through(memory: int) -> Read:
    """`memory`: a descriptor of /proc/PID/mem. What cannot be read is no bytes."""

    def read(address: int, size: int) -> bytes:
        try:
            return os.pread(memory, size, address)
        except (OSError, OverflowError):
            return b""

    return read


def tell_gil(pid: int, proc: Path = _PROC) -> str | None:
    """Of a free-threaded process, whether it runs without the GIL; null for any other, or where that is not known."""
    opened = open_runtime(pid, proc)
    if opened is None:
        return None
    runtime, memory = opened
    try:
        if not runtime.free_threaded:
            return None
        return "free-threaded, the GIL is on" if runtime.has_gil() else "free-threaded, the GIL is off"
    except (_Torn, StopIteration):
        return "free-threaded"
    finally:
        os.close(memory)


def read_own(
    pid: int, deadline_s: float, outer: Mapping[int, int], with_locals: bool = False, proc: Path = _PROC
) -> tuple[bytes, str | None]:
    """What py-spy would have printed, and why not. `outer`: thread ids as we see them, by those in a container."""
    end = time.monotonic() + deadline_s
    try:
        opened = open_runtime(pid, proc)
    except OSError as error:
        return b"", str(error)
    if opened is None:
        return b"", _NO_INTERPRETER
    runtime, memory = opened
    try:
        threads = list(_read_threads(runtime, with_locals, end))
    finally:
        os.close(memory)
    for thread in threads:
        tid = outer.get(thread["os_thread_id"], thread["os_thread_id"])
        thread |= {"os_thread_id": tid, "active": read_state(pid, tid, proc) == "R"}
    return json.dumps(threads).encode(), None if threads else "no thread could be read while it runs"


def _read_threads(runtime: _Runtime, with_locals: bool, end: float) -> Iterator[dict[str, Any]]:
    try:
        for thread in runtime.list_threads():
            if time.monotonic() > end:
                return
            if told := _read_thread(runtime, thread, with_locals):
                yield told
    except _Torn:  # the list of threads changed
        return


def _read_thread(runtime: _Runtime, thread: int, with_locals: bool) -> dict[str, Any] | None:
    """Two readings that are equal, of a thread that stands; of one that runs, the last that fits together."""
    found: dict[str, Any] | None = None
    for _ in range(3):
        try:
            frames = list(runtime.list_frames(thread, with_locals))
            now = {"os_thread_id": runtime.read_tid(thread), "thread_name": None, "owns_gil": False, "frames": frames}
        except (_Torn, IndexError):
            continue
        if now == found:
            break
        found = now
    return found
