"""Which release of CPython a program or libpython is, by the number compiled into it. Runs nothing.

`Py_Version` is exported since 3.11, by stripped builds too; of an older one only the names of its files tell.
"""

from __future__ import annotations

import struct
from pathlib import Path

from harness.capture.files.formats.elf import Elf

_LEVELS = {0xA: "a", 0xB: "b", 0xC: "rc"}


def read_release(path: str) -> str | None:
    """`3.11.2`, `3.15.0a1`. Null: the file is not there, or does not tell."""
    try:
        with Elf(Path(path)) as elf:
            symbol = elf.find(b"Py_Version")
            return _spell(*struct.unpack("<I", elf.content(symbol.address, 4))) if symbol else None
    except (OSError, ValueError, struct.error):
        return None


def _spell(number: int) -> str:
    """PY_VERSION_HEX as `patchlevel.h` composes it."""
    release = f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}"
    level = _LEVELS.get(number >> 4 & 15)
    return f"{release}{level}{number & 15}" if level else release
