"""The tools that read stacks on this host: found where the targets live or on PATH, or sent from the other side.

Whatever another user than us and root could have written is not found (trust.py): a target's owner chooses where it
seems to live. A sent one is a file without a name: in memory, else in a private directory that is gone before the file
is used.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from harness.capture.machine.trust import check_package, check_program, find_program
from harness.capture.proc import read_argv

_TRY_S = 10.0
_MEMORY = "memory"


class Kept(NamedTuple):
    """`path`: how to call it, null when it could not be kept. `left`: a directory that stays, when asked for."""

    path: str | None
    why: str | None = None
    left: str | None = None


def find_tool(name: str, pids: Sequence[int]) -> str | None:
    """In the targets' own environments, else on PATH."""
    for folder in dict.fromkeys(folder for pid in pids for folder in _list_folders(pid)):
        if (found := shutil.which(name, path=str(folder))) and (path := check_program(found).path):
            return path
    return find_program(name)


def find_pystack(pid: int) -> str | None:
    """Where pystack is installed for the target, if our interpreter is of the same version: it is compiled."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for folder in _list_folders(pid):
        for packages in (folder.parent / "lib" / version / "site-packages", folder.parent / "lib64" / version):
            if (packages / "pystack").is_dir() and check_package(packages, "pystack") is None:
                return str(packages)
    return None


def _list_folders(pid: int) -> Iterator[Path]:
    """Where its interpreter is: as it was called, which a virtual environment needs, and as it really is."""
    argv = read_argv(pid)
    if argv and argv[0].startswith("/"):
        yield Path(argv[0]).parent
    with contextlib.suppress(OSError):
        yield Path(f"/proc/{pid}/exe").readlink().parent


def keep_tool(stdin: IO[bytes], request: dict[str, Any]) -> Kept:
    """Reads it from `stdin`, whatever becomes of it."""
    data = zlib.decompress(stdin.read(request["size"]))
    if hashlib.sha256(data).hexdigest() != request["sha256"]:
        return Kept(None, "what arrived is not what was sent (sha256)")
    troubles = []
    for place in (*([] if request["keep"] else [_MEMORY]), *_list_places()):
        try:
            return _keep_in(place, data, request["keep"])
        except OSError as error:
            troubles.append(f"{place}: {error.strerror}")
    return Kept(None, "; ".join(troubles))


def _list_places() -> Iterator[str]:
    """Where a program may be put, if the mount allows it: a temporary directory is often noexec, or full."""
    temporary = os.environ.get("TMPDIR") or "/tmp"
    places = [temporary, os.environ.get("XDG_RUNTIME_DIR"), str(Path("~").expanduser()), "/var/tmp", "/dev/shm"]
    yield from dict.fromkeys(place for place in places if place and Path(place).is_dir())


def _keep_in(place: str, data: bytes, keep: bool) -> Kept:
    """OSError: it cannot be written there, or not be executed."""
    if place == _MEMORY:
        written = os.memfd_create("py-spy")
        _write(written, data)
        return _try(Kept(_path_of(_reopen(written))))
    folder = Path(tempfile.mkdtemp(prefix="harness-", dir=place))  # 0700, and nobody can guess its name
    file = folder / "py-spy"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        _write(written := os.open(file, flags, 0o700), data)
        if keep:
            os.close(written)
            if why := check_program(file).why:
                raise OSError(errno.EACCES, why)
            return _try(Kept(str(file), left=str(folder)))
        kept = Kept(_path_of(_reopen(written)))
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return _try(kept)


def _write(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _reopen(written: int) -> int:
    """What is open for writing cannot be executed."""
    readable = os.open(f"/proc/self/fd/{written}", os.O_RDONLY | os.O_CLOEXEC)
    os.close(written)
    return readable


def _path_of(file: int) -> str:
    return f"/proc/{os.getpid()}/fd/{file}"


def _try(kept: Kept) -> Kept:
    """OSError when it does not run here."""
    command = [str(kept.path), "--version"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRY_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError(errno.ETIMEDOUT, "it does not answer") from error
    if done.returncode:
        raise OSError(errno.ENOEXEC, f"it does not run: exit status {done.returncode}")
    return kept
