"""What somebody may have meant who asked to run a file that is no program: by its first bytes, what to type instead.

Reads the file, runs nothing. Null where it is a program after all.
"""

from __future__ import annotations

import shlex
import struct
from pathlib import Path

_ELF, _ET_CORE = b"\x7fELF", 4
_ARRAYS = (b"\x93NUMPY", b"PK\x03\x04")
_SHELLS = ("", ".sh", ".bash")


def tell_what_to_type(path: str, arguments: list[str]) -> str | None:
    """`arguments`: what was to follow it."""
    name, rest = shlex.quote(path), [path, *arguments]
    start = _read_start(path)
    if start.startswith(_ELF):
        return _read_core_with(path) if _is_core(start) else None
    if start.startswith(b"#!"):
        return None
    if start.startswith(_ARRAYS):
        return f"harness npz {name}"
    if path.endswith(".py"):
        return f"harness run python {shlex.join(rest)}"
    if not start:
        return f"ls -l {name}"
    is_script = Path(path).suffix in _SHELLS and b"\0" not in start
    return f"harness run sh {shlex.join(rest)}" if is_script else f"file {name}"


def _read_start(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(20)
    except OSError:
        return b""  # then all that can be done is to look at it


def _is_core(start: bytes) -> bool:
    return len(start) >= 18 and bool(struct.unpack_from("<H" if start[5] == 1 else ">H", start, 16)[0] == _ET_CORE)


def _read_core_with(path: str) -> str:
    """It names its own program."""
    from harness.capture.cores.file import BadCore, CoreFile

    program = "PROGRAM"
    try:
        with CoreFile(Path(path)) as core:
            program = core.executable or program
    except BadCore:
        pass
    return f"gdb -batch -ex 'thread apply all bt' {shlex.quote(program)} {shlex.quote(path)}"
