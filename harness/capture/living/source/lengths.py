"""Is the object at an address of a Python process something that has an end? By its type. Linux, CPython.

What has a length has one: its type fills one of two slots. Files are known by name. Stops nothing, runs nothing.
"""

from __future__ import annotations

from pathlib import Path

from harness.capture.stacks.cpython.objects import FREE_THREADED_HEAD_BYTES, HEAD_BYTES, Objects
from harness.capture.stacks.cpython.process_memory import Memory

_PROC = Path("/proc")
_AS_SEQUENCE, _AS_MAPPING = 88, 96  # of a type, after its head: where the tables are whose first entry is the length
_FILES = (b"_io.TextIOWrapper", b"_io.BufferedReader", b"_io.FileIO", b"_io.StringIO", b"_io.BytesIO")
_ITERATORS = (b"range_iterator", b"longrange_iterator", b"list_iterator", b"tuple_iterator", b"set_iterator")
# What has a length whatever it goes through.
_BARS = (b"tqdm", b"track")


def has_end(pid: int, address: int, *, free_threaded: bool = False, proc: Path = _PROC) -> bool:
    """Whether that is shown; what cannot be read shows nothing."""
    try:
        memory = Memory(pid, proc)
    except OSError:
        return False
    try:
        known = Objects(memory)
        known.head = FREE_THREADED_HEAD_BYTES if free_threaded else HEAD_BYTES
        return _has_end(memory, known, address)
    finally:
        memory.close()


def _has_end(memory: Memory, known: Objects, address: int) -> bool:
    name = known.name_type(address)
    if not name or name.startswith(_BARS):
        return False
    kind = memory.word(address + known.head - 8)
    tables = (memory.word(kind + known.head + at) for at in (_AS_SEQUENCE, _AS_MAPPING))
    return name in _FILES + _ITERATORS or any(table and memory.word(table) for table in tables)
