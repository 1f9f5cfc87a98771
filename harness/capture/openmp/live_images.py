"""What has to be seen of a process's OpenMP while it lives: images, bindings, registration record, settings. Linux.

Reads /proc/PID/{maps,mem,environ} and the tables of the ELF files, or of the images in memory where the files are no
longer the ones that were loaded. Stops nothing and loads nothing. What the images are and whose is asked afterwards, by
live.py, for which the process is needed no more.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from harness.capture.files.binaries import Binary, read_elf
from harness.capture.files.formats.elf import Elf
from harness.capture.files.images import Row, list_images
from harness.capture.files.layout import FAILURES, Layout, find_environ, read_file_layout, read_layout
from harness.capture.openmp.registration import Record, read_records
from harness.capture.openmp.variables import read_settings, read_variables
from harness.errors import Unreadable
from harness.evidence.crash import Image
from harness.evidence.gap import Gap
from harness.evidence.openmp import Setting

_PROC = Path("/proc")
_LIBC = re.compile(r"/(?:libc[.-]|ld-musl)[^/]*$")
_MOST_FROM_MEMORY = 64 << 20
_MOST_THREADS = 512
BINDINGS, RECORD = "what the OpenMP calls are bound to", "registration record"

Read = Callable[[int, int], bytes]


class Slot(NamedTuple):
    """An OpenMP function that is called: where its address is kept, and what is there; null: could not be read."""

    name: str
    address: int
    value: int | None


class Seen(NamedTuple):
    """One image. `replaced`: its file is not the one that was loaded; then `binary` was read from memory."""

    image: Image
    base: int
    end: int
    replaced: bool
    slots: tuple[Slot, ...] = ()
    openblas_threads: int | None = None
    binary: Binary | None = None


class Sighting(NamedTuple):
    """`root`: where the process's files are for us; empty when it sees the same ones.

    `waiting`: for each thread that waits in the kernel, the address that it will go on at.
    """

    pid: int
    images: tuple[Seen, ...]
    executable: str | None
    root: str
    records: tuple[Record, ...]
    waiting: tuple[int, ...]
    settings: tuple[Setting, ...]
    gaps: tuple[Gap, ...]
    seconds: float


NOTHING_SIGHTED = Sighting(0, (), None, "", (), (), (), (), 0.0)


def look_while_held(pid: int, rows: list[Row], proc: Path = _PROC) -> Sighting:
    """`rows`: what `read_maps` gave. Raises nothing: what cannot be seen is a gap."""
    begun = time.monotonic()
    gaps: list[Gap] = []
    root, executable = _find_root(pid, proc), _link(proc / str(pid) / "exe")
    starts = {hex(row.start): row for row in rows}
    with _open_memory(pid, proc, gaps) as read:
        images = tuple(_look_at(image, starts[image.base], root, read, gaps) for image in list_images(rows))
        now = _read_now(images, executable, root, read) if read else None
        return Sighting(
            pid=pid,
            images=images,
            executable=executable,
            root=root,
            records=_look_at_records(pid, now, read, proc, gaps),
            waiting=_read_waiting(proc / str(pid) / "task"),
            settings=_look_at_settings(pid, now, proc, gaps),
            gaps=tuple(gaps),
            seconds=time.monotonic() - begun,
        )


def look_at_memory(pid: int, rows: list[Row], executable: str | None, read: Read) -> Sighting:
    """Of a process that is dead: its core has the memory. Who waited and what was registered is gone with it."""
    begun = time.monotonic()
    gaps: list[Gap] = []
    starts = {hex(row.start): row for row in rows}
    images = tuple(_look_at(image, starts[image.base], "", read, gaps) for image in list_images(rows))
    return Sighting(pid, images, executable, "", (), (), (), tuple(gaps), time.monotonic() - begun)


@contextlib.contextmanager
def _open_memory(pid: int, proc: Path, gaps: list[Gap]) -> Iterator[Read | None]:
    """Null where only the mappings may be seen, as under Yama's ptrace_scope 1; man 2 ptrace."""
    try:
        memory = os.open(proc / str(pid) / "mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        gaps.append(Gap(BINDINGS, f"/proc/{pid}/mem: {error.strerror}", f"sudo harness openmp {pid}"))
        yield None
        return
    try:
        yield lambda address, size: os.pread(memory, size, address)
    finally:
        os.close(memory)


def _find_root(pid: int, proc: Path) -> str:
    """A process in a container sees other files under the same names."""
    mine, its = _link(proc / "self/ns/mnt"), _link(proc / str(pid) / "ns/mnt")
    same = mine == its and _link(proc / str(pid) / "root") == "/"
    return "" if same or its is None else str(proc / str(pid) / "root")


def _link(path: Path) -> str | None:
    try:
        return os.fsencode(path.readlink()).decode("utf-8", "replace")
    except OSError:
        return None


def _look_at(image: Image, row: Row, root: str, read: Read | None, gaps: list[Gap]) -> Seen:
    base, end = int(image.base, 16), int(image.end, 16)
    replaced = image.deleted or _was_replaced(root + image.path, row, read)
    seen = Seen(replace(image, deleted=replaced), base, end, replaced)
    try:
        if not replaced:
            return _fill(seen, read_file_layout(root + image.path), read)
        return _look_in_memory(seen, read)
    except FAILURES as error:
        gaps.append(Gap(f"what {image.path} calls", str(error)))
        return seen


def _was_replaced(path: str, row: Row, read: Read | None) -> bool:
    """Another inode, and other bytes at its start. Inodes alone do not tell: overlayfs and btrfs show two of them."""
    try:
        if Path(path).stat().st_ino == row.file[1]:
            return False
        size = min(4096, row.end - row.start)
        with Path(path).open("rb") as file:
            return read is not None and file.read(size) != read(row.start, size)
    except OSError:
        return True


def _look_in_memory(seen: Seen, read: Read | None) -> Seen:
    if read is None:
        raise Unreadable("the file was replaced or removed after it was loaded, and the memory may not be read")
    elf = Elf.of_memory(read, seen.base, seen.end - seen.base)
    filled = _fill(seen, read_layout(elf), read)
    return filled._replace(binary=read_elf(elf)) if seen.end - seen.base <= _MOST_FROM_MEMORY else filled


def _fill(seen: Seen, layout: Layout, read: Read | None) -> Seen:
    threads = layout.openblas_threads
    return seen._replace(
        end=max(seen.end, seen.base + layout.size),
        slots=tuple(Slot(name, seen.base + at, _word(read, seen.base + at, 8)) for name, at in layout.slots),
        openblas_threads=None if threads is None else _word(read, seen.base + threads, 4) or None,  # 0: not counted yet
    )


def _word(read: Read | None, address: int, size: int) -> int | None:
    data = b"" if read is None else read(address, size)
    return int.from_bytes(data, "little") if len(data) == size else None


def _look_at_records(
    pid: int, now: list[bytes] | None, read: Read | None, proc: Path, gaps: list[Gap]
) -> tuple[Record, ...]:
    if read is None:
        return ()
    if now is None:
        gaps.append(Gap(RECORD, "the environment, where static copies keep it, was not found in the process"))
    try:
        return read_records(pid, read, now or [], proc)
    except OSError as error:
        gaps.append(Gap(RECORD, str(error)))
        return ()


def _read_waiting(tasks: Path) -> tuple[int, ...]:
    """From /proc/PID/task/TID/syscall, whose last word is the program counter; a running thread has none there."""
    found = []
    with contextlib.suppress(OSError):
        for tid in os.listdir(tasks)[:_MOST_THREADS]:  # noqa: PTH208 (only names are wanted)
            with contextlib.suppress(OSError, ValueError):
                found.append(int((tasks / tid / "syscall").read_text().split()[-1], 16))
    return tuple(found)


def _look_at_settings(pid: int, now: list[bytes] | None, proc: Path, gaps: list[Gap]) -> tuple[Setting, ...]:
    try:
        return read_settings(pid, now, proc)
    except OSError as error:
        gaps.append(Gap("environment variables", str(error)))
        return ()


def _read_now(images: tuple[Seen, ...], executable: str | None, root: str, read: Read) -> list[bytes] | None:
    """The program's own `environ` counts before libc's: it has taken that over."""
    keepers = [seen for seen in images if seen.image.path == executable or _LIBC.search(seen.image.path)]
    for seen in sorted(keepers, key=lambda seen: seen.image.path != executable):
        with contextlib.suppress(*FAILURES):
            if not seen.replaced and (environ := find_environ(root + seen.image.path)) is not None:
                return read_variables(read, seen.base + environ)
    return None
