"""The readers that are tried, each with real answers, which tools have left in tests/data/fuzz, or which are made.

Only what a module offers to others is asked.
"""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.fuzz.engine import Target

DATA = Path(__file__).parents[1] / "data" / "fuzz"
TARGETS: dict[str, Target] = {}
Reader = Callable[[bytes], object]


def target(name: str, *seeds: bytes, text: bool = True) -> Callable[[Reader], Reader]:
    """Puts a reader into the registry."""

    def register(read: Reader) -> Reader:
        TARGETS[name] = Target(name, read, seeds, text)
        return read

    return register


def load(*names: str) -> tuple[bytes, ...]:
    found = {name: (DATA / name).read_bytes() for name in names}
    return tuple(gzip.decompress(data) if name.endswith(".gz") else data for name, data in found.items())


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


@cache
def scratch() -> Path:
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    _FOLDERS.append(tempfile.TemporaryDirectory(prefix="harness-fuzz-", dir=place))
    return Path(_FOLDERS[-1].name)


def keep(data: bytes, name: str = "file") -> Path:
    path = scratch() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def decode(data: bytes) -> str:
    return data.decode(errors="replace")
