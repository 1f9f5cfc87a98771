"""What was read from native files and folders before, so that what has not changed since is not read again.

One file in the user's cache directory, replaced as a whole, readable by its owner only. A file is the same when path,
size, time, inode and device are; damage of any kind only means that everything is read again.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from harness.capture.files.binaries import Binary
from harness.capture.machine.trust import check_file
from harness.evidence.case import is_anothers
from harness.version import __version__

_FORMAT = f"1 {__version__}"
_MOST_ENTRIES = 100_000
_SETTLED_NS = 2_000_000_000  # younger than this a file may change again within the same tick of its clock


class Identity(Struct, frozen=True, array_like=True):
    size_bytes: int
    mtime_ns: int
    inode: int
    device: int

    @property
    def file(self) -> tuple[int, int]:
        return self.device, self.inode


class ReadFile(Struct, frozen=True, array_like=True):
    """`problem`: why it could not be read."""

    identity: Identity
    images: tuple[Binary, ...]
    problem: str | None = None


class ReadFolder(Struct, frozen=True, array_like=True):
    """Its native files and the folders in it, by name."""

    identity: Identity
    files: tuple[str, ...]
    folders: tuple[str, ...]


class _Stored(Struct):
    format: str
    files: dict[str, ReadFile]
    folders: dict[str, ReadFolder]


def identity_of(path: str) -> Identity:
    """OSError: it is not there."""
    status = os.stat(path)  # noqa: PTH116 - ten thousand times, Path costs as much as the call
    return Identity(status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev)


def default_place() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("harness")) / "native-files"


class Memory:
    """`place` null: nothing is kept."""

    def __init__(self, place: Path | None) -> None:
        self._place = place
        self._stored = _load(place)
        self._changed = False

    def file(self, path: str, identity: Identity) -> ReadFile | None:
        known = self._stored.files.get(path)
        return known if known is not None and known.identity == identity else None

    def folder(self, path: str, identity: Identity) -> ReadFolder | None:
        known = self._stored.folders.get(path)
        return known if known is not None and known.identity == identity else None

    def keep_file(self, path: str, read: ReadFile) -> None:
        if _is_settled(read.identity):
            self._stored.files.pop(path, None)  # the newest stand last
            self._stored.files[path] = read
            self._changed = True

    def keep_folder(self, path: str, read: ReadFolder) -> None:
        if _is_settled(read.identity):
            self._stored.folders.pop(path, None)
            self._stored.folders[path] = read
            self._changed = True

    def save(self) -> None:
        """A full disk or a read-only home costs time, not the answer."""
        if self._place is None or not self._changed or is_anothers(self._place):
            return
        for table in (self._stored.files, self._stored.folders):
            for path in list(table)[: max(0, len(table) - _MOST_ENTRIES)]:
                del table[path]
        with contextlib.suppress(OSError):
            _replace(self._place, msgspec.msgpack.encode(self._stored))
            self._changed = False


def _is_settled(identity: Identity) -> bool:
    return identity.mtime_ns < time.time_ns() - _SETTLED_NS


def _load(place: Path | None) -> _Stored:
    if place is not None and check_file(place) is None:
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            stored = msgspec.msgpack.decode(place.read_bytes(), type=_Stored)
            if stored.format == _FORMAT:
                return stored
    return _Stored(_FORMAT, {}, {})


def _replace(place: Path, data: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}-")  # 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
