"""Which copies of an LLVM or Intel OpenMP runtime have registered themselves in a process: those have initialised.

A runtime writes `ADDRESS-FLAG-FILE NAME` when it initialises (kmp_runtime.cpp, __kmp_register_library_startup): to
shared memory, or, where it was linked in statically or is old, into the process's environment; each looks for others in
its own place only. The file outlives a process that was killed, and pids come back: a record counts only when the flag
is in the process's memory too. GNU's libgomp has no such record. Linux.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from harness.capture.proc import read_status_fields

_PROC = Path("/proc")
_FOLDERS = ("dev/shm", "tmp")  # the second is for systems without the first
_CONTENT = re.compile(rb"(0x[0-9a-f]+)-(cafe[0-9a-f]+)-([^\0]*)")


class Record(NamedTuple):
    """`address` is that of a variable of the copy that wrote it; `stale`: an earlier process with this pid did.

    `file` null: it is in the environment.
    """

    file: str | None
    address: int
    name: str
    stale: bool


def read_records(
    pid: int, read: Callable[[int, int], bytes], variables: list[bytes], proc: Path = _PROC
) -> tuple[Record, ...]:
    """`variables`: the environment as it is now. `read` takes an address and a size. OSError: cannot be read."""
    status = read_status_fields(pid, proc=proc)
    name = f"__KMP_REGISTERED_LIB_{status.get('NSpid', [str(pid)])[-1]}"
    uids = {int(uid) for uid in status["Uid"]}
    found = [*_in_files(proc / str(pid) / "root", name, uids), *_in_variables(variables, name)]
    return tuple(
        Record(file, int(match[1], 16), match[3].decode(errors="replace"), not _has_flag(match, read))
        for file, content in found
        if (match := _CONTENT.match(content))
    )


def remove_record(pid: int, root: Path = Path("/")) -> None:
    """What a child of ours that is dead has left: a later process with its pid could stop with Error #15 for it."""
    for file, _ in _in_files(root, f"__KMP_REGISTERED_LIB_{pid}", {os.getuid()}):
        with contextlib.suppress(OSError):
            Path(f"{root}/{file}").unlink()


def _in_files(root: Path, name: str, uids: set[int]) -> Iterator[tuple[str | None, bytes]]:
    """In the process's own mount namespace, under its pid there, and written by its user."""
    for folder in _FOLDERS:
        for file in sorted((root / folder).glob(f"{name}*")):
            if file.name.removeprefix(name)[:1] in ("", "_") and file.stat().st_uid in uids:
                yield f"/{folder}/{file.name}", file.read_bytes()


def _in_variables(variables: list[bytes], name: str) -> Iterator[tuple[str | None, bytes]]:
    for variable in variables:
        if variable.startswith(name.encode() + b"="):
            yield None, variable.partition(b"=")[2]


def _has_flag(match: re.Match[bytes], read: Callable[[int, int], bytes]) -> bool:
    """Whether it is at its address; false where nothing is mapped."""
    with contextlib.suppress(OSError, OverflowError):
        return int.from_bytes(read(int(match[1], 16), 8), "little") == int(match[2], 16)
    return False
