"""Does Ctrl-C mean to a Python process what it means to every other, or has it a handler of its own? Linux, CPython.

The kernel knows one handler for all that Python handles. What Python then calls stands in a table of the interpreter, a
number and a pointer for each signal, in its own data, where many builds have no symbols: it is known by its shape.
Stops nothing. An event loop that cancels its main task on Ctrl-C does what Python does.
"""

from __future__ import annotations

import signal
import struct
from collections.abc import Iterator
from pathlib import Path

from harness.capture.files.images import PYTHON_FILE, Row
from harness.capture.stacks.cpython.objects import FREE_THREADED_HEAD_BYTES, HEAD_BYTES, Objects
from harness.capture.stacks.cpython.process_memory import Memory

_PROC = Path("/proc")
_SIGNALS = 64
_MOST_BYTES = 8 << 20
_LEAST_POINTER = 1 << 16
_FIELDS = 12  # of a function; its name is among them
_DEFAULT, _LOOPS_OWN = b"default_int_handler", b"_on_sigint"  # Modules/signalmodule.c, asyncio/runners.py


_found: dict[tuple[str, int], int] = {}  # by the interpreter's file: how far behind its own data the table is


def has_usual_interrupt(pid: int, proc: Path = _PROC) -> bool | None:
    """Whether SIGINT becomes a KeyboardInterrupt. Null: that could not be read."""
    try:
        memory = Memory(pid, proc)
    except OSError:
        return None
    try:
        for own, table in _list_tables(memory):
            for head in (HEAD_BYTES, FREE_THREADED_HEAD_BYTES):
                objects = Objects(memory)
                objects.head = head
                if _is_handlers(objects, table):
                    _found[own.file] = table - own.start
                    return _is_usual(objects, memory.word(_entry(table, signal.SIGINT)))
        return None
    finally:
        memory.close()


def _list_tables(memory: Memory) -> Iterator[tuple[Row, int]]:
    """What looks like one, and the interpreter's data before it; first where that of the same file was."""
    rows = list(_list_own_data(memory))
    yield from ((own, own.start + _found[own.file]) for own, row in rows if own is row and own.file in _found)
    for own, row in rows:
        yield from ((own, row.start + at) for at in _find_tables(memory.read(row.start, row.end - row.start)))


def _list_own_data(memory: Memory) -> Iterator[tuple[Row, Row]]:
    """The writable part of the interpreter's file, and with it what is mapped behind: data that began as zeros."""
    own = before = None
    for row in memory.rows:
        named = bool(PYTHON_FILE.search(row.path))
        if not named and (before is None or row.path or row.start != before.end):
            own = before = None
            continue
        before = row
        if row.permissions.startswith("rw") and row.end - row.start <= _MOST_BYTES:
            own = row if named else own
            if own is not None:
                yield own, row


def _entry(table: int, signo: int) -> int:
    return table + 16 * signo + 8


def _find_tables(data: bytes) -> Iterator[int]:
    """Where pairs of 0 or 1 and a pointer begin, one for each signal, after one whose pointer is null."""
    for start in (0, 8):
        pairs = list(struct.iter_unpack("<QQ", data[start : start + (len(data) - start) // 16 * 16]))
        for probe in range(_SIGNALS, len(pairs), _SIGNALS):  # of so many in a row one is among these
            first = probe
            while first and _is_pair(pairs[first]):
                first -= 1
            if first < probe and not any(pairs[first]) and all(map(_is_pair, pairs[probe : first + _SIGNALS + 1])):
                yield start + 16 * first


def _is_pair(pair: tuple[int, ...]) -> bool:
    return pair[0] <= 1 and pair[1] >= _LEAST_POINTER


def _is_handlers(objects: Objects, table: int) -> bool:
    """Two signals cannot be handled: they have the integer that stands for nothing."""
    kill, stop = (objects.memory.word(_entry(table, signo)) for signo in (signal.SIGKILL, signal.SIGSTOP))
    return kill == stop and objects.name_type(kill) == b"int"


def _is_usual(objects: Objects, handler: int) -> bool:
    kind, memory, head = objects.name_type(handler), objects.memory, objects.head
    first = memory.word(handler + head)
    if kind == b"builtin_function_or_method":
        return memory.read(memory.word(first), len(_DEFAULT) + 1) == _DEFAULT + b"\0"
    if kind == b"functools.partial" and objects.name_type(first) == b"method":
        function = memory.word(first + head)
        fields = struct.iter_unpack("<Q", memory.read(function + head, 8 * _FIELDS))
        texts = (memory.read(field, 128) for (field,) in fields if objects.name_type(field) == b"str")
        return any(_LOOPS_OWN + b"\0" in text for text in texts)
    return False
