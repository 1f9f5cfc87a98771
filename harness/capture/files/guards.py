"""Guard pages that /proc/PID/maps does not show. Linux.

From glibc 2.42 the guard below a thread's stack is no mapping without access, but a mark on its pages
(MADV_GUARD_INSTALL): maps has one readable and writable mapping, or one for several stacks. Linux 6.15 and later tell
in the pagemap.
"""

from __future__ import annotations

import os
from pathlib import Path

from harness.evidence.crash import Mapping

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGESIZE")
_GUARD = 1 << (58 - 56)  # in the last byte of an entry; Documentation/admin-guide/mm/pagemap.rst
_AROUND = 256 * _PAGE
_NO_ACCESS = "---p"


def show_guard(pid: int, mappings: tuple[Mapping, ...], address: int, proc: Path = _PROC) -> tuple[Mapping, ...]:
    """The mappings with the guard pages that hold this address as one of their own, without access."""
    for at, mapping in enumerate(mappings):
        start, end = int(mapping.start, 16), int(mapping.end, 16)
        if start <= address < end and (guard := _find_guard(proc / str(pid) / "pagemap", address, start, end)):
            parts = (start, guard[0], mapping.permissions), (*guard, _NO_ACCESS), (guard[1], end, mapping.permissions)
            split = [Mapping(hex(low), hex(high), access, mapping.path) for low, high, access in parts if low < high]
            return (*mappings[:at], *split, *mappings[at + 1 :])
    return mappings


def _find_guard(pagemap: Path, address: int, start: int, end: int) -> tuple[int, int] | None:
    page = address // _PAGE * _PAGE
    first, last = max(start, page - _AROUND), min(end, page + _AROUND)
    try:
        with pagemap.open("rb", buffering=0) as file:
            marks = os.pread(file.fileno(), (last - first) // _PAGE * 8, first // _PAGE * 8)[7::8]
    except (OSError, OverflowError):
        return None
    here = (page - first) // _PAGE
    if here >= len(marks) or not marks[here] & _GUARD:
        return None
    low, high = here, here + 1
    while low > 0 and marks[low - 1] & _GUARD:
        low -= 1
    while high < len(marks) and marks[high] & _GUARD:
        high += 1
    return first + low * _PAGE, first + high * _PAGE
