"""Which copy of an LLVM or Intel OpenMP runtime holds a process's registration record: that one has initialised.

The runtime writes `ADDRESS-FLAG-FILE NAME` to shared memory when it initialises (kmp_runtime.cpp,
__kmp_register_library_startup). The file outlives a process that was killed, and pids come back: the record counts
only when the flag is in the process's memory too. GNU's libgomp has no such record. Linux.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_FOLDERS = ("dev/shm", "tmp")  # the second is for systems without the first
_CONTENT = re.compile(rb"(0x[0-9a-f]+)-(cafe[0-9a-f]+)-([^\0]*)")


class Record(NamedTuple):
    """`address` is that of a variable of the copy that wrote it; `stale`: an earlier process with this pid did."""

    file: str
    address: int
    name: str
    stale: bool


def read_record(pid: int, read: Callable[[int, int], bytes], proc: Path = _PROC) -> Record | None:
    """Null: nobody has registered. `read` takes an address and a size; OSError where the process cannot be read."""
    stale = None
    for file in _record_files(pid, proc):
        match = _CONTENT.match(file.read_bytes())
        if match is None:
            continue
        address, flag = int(match[1], 16), int(match[2], 16)
        shown = "/" + str(file.relative_to(proc / str(pid) / "root"))
        record = Record(shown, address, match[3].decode(errors="replace"), _flag_at(read, address) != flag)
        if not record.stale:
            return record
        stale = record
    return stale


def _flag_at(read: Callable[[int, int], bytes], address: int) -> int | None:
    """Null where nothing is mapped."""
    with contextlib.suppress(OSError, OverflowError):
        data = read(address, 8)
        return int.from_bytes(data, "little") if len(data) == 8 else None
    return None


def _record_files(pid: int, proc: Path) -> Iterator[Path]:
    """In the process's own mount namespace, under its pid there, and written by its user."""
    status = dict(
        line.split(":\t", 1) for line in (proc / str(pid) / "status").read_text(errors="replace").splitlines()
    )
    own_pid = status.get("NSpid", str(pid)).split()[-1]
    uids = {int(uid) for uid in status["Uid"].split()}
    name = f"__KMP_REGISTERED_LIB_{own_pid}"
    for folder in _FOLDERS:
        for file in sorted((proc / str(pid) / "root" / folder).glob(f"{name}*")):
            if file.name.removeprefix(name)[:1] in ("", "_") and file.stat().st_uid in uids:
                yield file
