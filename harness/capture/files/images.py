"""What is mapped into a process: every mapping, and the programs and libraries among them. Linux.

Reads /proc/PID/maps and, for a file mapped twice, its program headers. Who owns a file is the business of owners.py.
`proc` is a variable so that a made-up tree can be tested.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from harness.capture.files.formats.elf import Elf
from harness.errors import Unreadable
from harness.evidence.crash import Image, Mapping

_PROC = Path("/proc")
_DELETED = " (deleted)"
# The interpreter itself, or the library that holds it.
PYTHON_FILE = re.compile(r"(?:^|/)(?:lib)?python[0-9.]*[a-z]*(?:\.so[0-9.]*)?$")
_ROW = re.compile(
    r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) (\S{1,8}) ([0-9a-f]{1,16}) (\S{1,16}) ([0-9]{1,20}) *(.*)", re.DOTALL
)
_LIBRARY = re.compile(r"\.so(\.[\w.+-]+)?$")


class Row(NamedTuple):
    """One line of /proc/PID/maps with what Mapping leaves out; man 5 proc_pid_maps."""

    start: int
    end: int
    permissions: str
    offset: int
    file: tuple[str, int]  # device and inode
    path: str


def read_mappings(pid: int, proc: Path = _PROC) -> tuple[Mapping, ...]:
    return list_mappings(read_maps(pid, proc))


def read_images(pid: int, proc: Path = _PROC) -> tuple[Image, ...]:
    return list_images(read_maps(pid, proc))


def read_maps(pid: int, proc: Path = _PROC) -> list[Row]:
    rows = parse_maps((proc / str(pid) / "maps").read_text(errors="surrogateescape"))
    above = _find_path_above(pid, proc)
    if not above:
        return rows
    return [row._replace(path=row.path[len(above) :]) if row.path.startswith(f"{above}/") else row for row in rows]


def _find_path_above(pid: int, proc: Path) -> str:
    """What stands before each path of a process that has our root, if that is a chroot, in another mount namespace.

    The kernel tells the paths of another namespace from its topmost root, and those that we open begin at ours.
    """
    its = proc / str(pid) / "root"
    try:
        above = os.readlink(its).removesuffix("/")  # noqa: PTH115 (its bytes stay as they are)
        return above if above and its.samefile(proc / "self/root") else ""
    except OSError:
        return ""


def parse_maps(text: str) -> list[Row]:
    """Unreadable: it is no such table. The kernel escapes a line feed in a path, and nothing else that ends lines."""
    rows = []
    for line in text.split("\n"):
        if line and (found := _ROW.fullmatch(line)) is None:
            raise Unreadable(f"no line of /proc/PID/maps: {line[:80]!r}")
        if line and found:
            start, end, permissions, offset, device, inode, path = found.groups()
            file = (device, int(inode))
            rows.append(Row(int(start, 16), int(end, 16), permissions, int(offset, 16), file, _unescape(path)))
    return rows


def _unescape(path: str) -> str:
    return path.replace("\\012", "\n")


def list_mappings(rows: list[Row]) -> tuple[Mapping, ...]:
    return tuple(Mapping(hex(row.start), hex(row.end), row.permissions, _printable(row.path) or None) for row in rows)


def list_images(rows: list[Row]) -> tuple[Image, ...]:
    """One for each time a file was loaded, in the order of their bases."""
    return tuple(sorted(filter(None, map(_image, _loads(rows))), key=lambda image: int(image.base, 16)))


def _loads(rows: list[Row]) -> Iterator[list[Row]]:
    """The mappings of each load. The same file can be there twice: dlmopen, or a replaced file under the old path.

    And a part of it alone: libffi maps one page of its own code again, for its closures. That is no load.
    """
    loads: dict[tuple[str, tuple[str, int]], list[Row]] = {}
    last: tuple[str, tuple[str, int]] | None = None
    for row in rows:
        if not row.path.startswith("/"):
            continue
        key = (row.path, row.file)
        load = loads.get(key)
        if load is not None and row.offset == 0 and load[0].offset != 0:
            loads[key] = []  # what came before it was such a part
        elif load is not None and (key != last or row.offset < load[-1].offset) and _is_beyond(load[0], row):
            if row.offset != 0:
                continue
            yield loads.pop(key)
        loads.setdefault(key, []).append(row)
        last = key
    yield from loads.values()


def _is_beyond(first: Row, row: Row) -> bool:
    """Further up than the file reaches that is loaded there. In a tiny library data begin in the first page as well."""
    span = None if row.path.endswith(_DELETED) else read_span(Path(row.path))
    return row.offset == 0 if span is None else row.start >= first.start + span


def read_span(path: Path) -> int | None:
    """Bytes from the first to the last loaded page of an ELF file. Null when it is none."""
    try:
        with Elf(path) as elf:
            return elf.span
    except (OSError, ValueError, struct.error):
        return None


def _image(load: list[Row]) -> Image | None:
    path = load[0].path.removesuffix(_DELETED)
    deleted = path != load[0].path
    if not _LIBRARY.search(path) and not (any("x" in row.permissions for row in load) and (deleted or _is_elf(path))):
        return None
    return Image(_printable(path), hex(load[0].start), hex(load[-1].end), deleted=deleted)


def _is_elf(path: str) -> bool:
    try:
        with Path(path).open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _printable(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def find_python(executable: str | None, images: tuple[Image, ...]) -> str | None:
    """The program itself, or the libpython in it; null when there is no sign of Python."""
    return next(
        (path for path in (executable, *(image.path for image in images)) if path and PYTHON_FILE.search(path)), None
    )
