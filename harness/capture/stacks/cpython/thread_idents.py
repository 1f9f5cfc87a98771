"""Which living thread of another process an ident of Python's means. Linux.

An ident is the address of the C library's struct pthread, in which the kernel's thread id stands. At which offset is
learned from our own thread. It is believed of a process with the same C library, and of one whose interpreter has
the ident and the thread id of a living thread side by side (3.11 and later).
"""

from __future__ import annotations

import os
import re
import struct
import threading
from collections.abc import Container, Iterable
from functools import cache, cached_property
from pathlib import Path

from harness.capture.files.images import Row, read_maps
from harness.capture.stacks.cpython.process_memory import Memory

_PROC = Path("/proc")
_SMALLEST_IDENT = 1 << 31
_NEAR = 256
_PTHREAD_BYTES = 2304
_MOST_PLACES = 256
_C_LIBRARY = re.compile(r"/(?:libc[.-]|ld-musl|libpthread)[^/]*$")


class Threads:
    def __init__(self, memory: Memory, pid: int, proc: Path) -> None:
        self._memory, self._pid = memory, pid
        self._tids = {int(task.name) for task in (proc / str(pid) / "task").iterdir()}
        self._offset = _learn_offset()

    def look_up(self, ident: int) -> tuple[int | None, bool | None]:
        """(tid, true), or (null, false) for a thread that has ended, or (null, null) when that cannot be told."""
        if self._offset is None or not ident:
            return None, None
        tid = self._read_tid(ident)
        if tid in self._tids:
            return tid, True
        return None, False if self._is_offset_known else None

    def find_near(self, address: int) -> tuple[int | None, bool | None]:
        """The ident that stands closest before this place."""
        data = self._memory.read(address // 8 * 8 - _NEAR, _NEAR)
        for (ident,) in reversed(list(struct.iter_unpack("<Q", data[: len(data) // 8 * 8]))):  # as much as there is
            if ident > _SMALLEST_IDENT and ident % 16 == 0 and self._memory.is_mapped(ident):
                tid, alive = self.look_up(ident)
                if tid is not None:
                    return tid, alive
        return None, None

    def _read_tid(self, ident: int) -> int:
        return int.from_bytes(self._memory.read(ident + (self._offset or 0), 4), "little")

    @cached_property
    def _is_offset_known(self) -> bool:
        return bool(_list_c_libraries(self._memory.rows) & _our_c_libraries()) or self._is_seen_to_hold()

    def _is_seen_to_hold(self) -> bool:
        """The main thread's state has its ident and its thread id side by side."""
        for count, place in enumerate(self._memory.find(self._pid)):
            ident = self._memory.word(place - 8)
            if ident > _SMALLEST_IDENT and ident % 16 == 0 and self._read_tid(ident) == self._pid:
                return True
            if count > _MOST_PLACES:
                break
        return False


def find_tids(pid: int, idents: Iterable[int], known: Container[int], proc: Path = _PROC) -> dict[int, int]:
    """By ident the thread id that stands there, if it is one of `known`. Searches nothing."""
    offset = _learn_offset()
    if offset is None:
        return {}
    memory = os.open(proc / str(pid) / "mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return {ident: tid for ident in idents if (tid := _read_number(memory, ident + offset)) in known}
    finally:
        os.close(memory)


def _read_number(memory: int, address: int) -> int:
    try:
        return int.from_bytes(os.pread(memory, 4, address), "little")
    except (OSError, OverflowError):
        return 0


@cache
def _learn_offset() -> int | None:
    """Where in struct pthread our own thread id is; musl and every glibc have their own place for it."""
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        try:
            data = os.pread(memory.fileno(), _PTHREAD_BYTES, threading.get_ident())
        except (OSError, OverflowError):
            return None
    tid = threading.get_native_id()
    found = [at for at in range(0, len(data) - 3, 4) if int.from_bytes(data[at : at + 4], "little") == tid]
    return found[0] if found else None


@cache
def _our_c_libraries() -> frozenset[tuple[str, int]]:
    return frozenset(_list_c_libraries(read_maps(os.getpid())))


def _list_c_libraries(rows: list[Row]) -> set[tuple[str, int]]:
    return {row.file for row in rows if _C_LIBRARY.search(row.path)}
