"""Whether these arrays fit into memory when they are touched: conflict, risk or no-conflict, and why.

Pure. An .npz is never mapped by numpy, so what counts is what its arrays take in memory, not its size on disk.
"""

from __future__ import annotations

import shlex
from typing import Literal

from harness.documents.npz import NpzDocument, NpzRuling
from harness.documents.verdict import Ground, Remedy
from harness.evidence.arrays import Array, ArrayFile, Measured, Room

# From here on the rest of the program decides whether it still fits.
_CLOSE = 0.8
# Deflate cannot do better than 1032; real arrays hardly reach 10.
_EXPANDS = 100
_READS_WHOLE = (
    "numpy reads an array of an .npz whole, into memory of its own, at every access: data['X'] twice is two copies, "
    "and mmap_mode is accepted and ignored. Only a .npy file, or a stored member at its offset, can be mapped."
)
_READS_PLAIN = "np.load reads a .npy file whole into memory; with mmap_mode='r' it maps it, and reads what is touched."


def judge_npz(
    harness: str,
    files: tuple[ArrayFile, ...],
    room: Room,
    measured: tuple[Measured, ...] = (),
    python: str | None = None,
    unread: tuple[str, ...] = (),
) -> NpzDocument:
    sizes = [array.ram_bytes or 0 for file in files for array in _counted(file)]
    total, largest = sum(sizes), max(sizes, default=0)
    ruling = _rule(files, room, total, largest, unread)
    return NpzDocument(harness, ruling, files, total, largest, room, measured, python, unread)


def _counted(file: ArrayFile) -> list[Array]:
    return [array for array in file.arrays if array.ram_bytes is not None and not array.shadowed]


def _rule(files: tuple[ArrayFile, ...], room: Room, total: int, largest: int, unread: tuple[str, ...]) -> NpzRuling:
    unknown = [*unread, *_list_unknown(files)]
    kind = _weigh(total, room, unknown)
    return NpzRuling(
        kind=kind,
        status="supported" if unknown or room.available_bytes is None else "established",
        headline=_headline(kind, files, room, total, largest, unknown),
        explanation=_READS_PLAIN if all(file.kind == "npy" for file in files) else _READS_WHOLE,
        grounds=tuple(_grounds(files, room)),
        remedies=_remedies(files) if _is_tight(total, room) else (),
        next=_next(files, tight=_is_tight(total, room), unknown=bool(unknown)),
    )


def _weigh(total: int, room: Room, unknown: list[str]) -> Literal["conflict", "risk", "no-conflict"]:
    if room.available_bytes is not None and total > room.available_bytes:
        return "conflict"
    if unknown or _is_tight(total, room):
        return "risk"
    return "no-conflict"


def _is_tight(total: int, room: Room) -> bool:
    return room.available_bytes is None or total > _CLOSE * room.available_bytes


def _list_unknown(files: tuple[ArrayFile, ...]) -> list[str]:
    """What keeps the sum from being the whole truth."""
    troubles = [trouble for file in files for trouble in file.troubles]
    for file in files:
        troubles += [f"{array.name} is {_shorten(array)}" for array in file.arrays if array.trouble or array.pickled]
    return troubles


def _shorten(array: Array) -> str:
    return array.trouble.partition(":")[0] if array.trouble else "pickled: its size is known only after loading"


def _headline(kind: str, files: tuple[ArrayFile, ...], room: Room, total: int, largest: int, unknown: list[str]) -> str:
    which = files[0].path.rpartition("/")[2] if len(files) == 1 else f"these {len(files)} files"
    count = sum(len(_counted(file)) for file in files)
    arrays = "its array" if count == 1 else f"all {count} arrays"
    what = f"{which}: touching {arrays} takes {tell_bytes(total)}"
    if count > 1:
        what += f" (the largest {tell_bytes(largest)})"
    if room.available_bytes is None:
        return f"{what}; how much can be had is not known."
    had = f"{tell_bytes(room.available_bytes)} can be had"
    if kind == "conflict":
        fits = "" if largest > room.available_bytes else ": one at a time they fit, together they do not"
        return f"{what}, and only {had}{fits}."
    if _is_tight(total, room):
        return f"{what}; {had}, which leaves little for anything else."
    but = f", but {unknown[0].rstrip('.')}" if unknown else ""
    return f"{what}; {had}{but}."


def _grounds(files: tuple[ArrayFile, ...], room: Room) -> list[Ground]:
    grounds = []
    if room.available_bytes is not None and room.source is not None:
        grounds.append(Ground(f"{tell_bytes(room.available_bytes)} can be had {room.source}", "now, swap not counted"))
    for file in files:
        for array in _counted(file):
            if array.method != "stored" and array.ram_bytes and array.ram_bytes > _EXPANDS * max(array.file_bytes, 1):
                what = f"{array.name}: {tell_bytes(array.file_bytes)} on disk become {tell_bytes(array.ram_bytes)}"
                grounds.append(Ground(what, file.path))
    return grounds


def _remedies(files: tuple[ArrayFile, ...]) -> tuple[Remedy, ...]:
    archives = [file for file in files if file.kind == "npz" and any(_is_convertible(array) for array in file.arrays)]
    remedies = []
    if archives:
        why = "then np.load(…, mmap_mode='r') maps each array"
        remedies.append(Remedy(f"Convert once: {_conversion(archives[0])}", True, why))
    if any(array.offset is not None for file in archives for array in file.arrays):
        why = "its stored members can be mapped where they are, see the map lines"
        remedies.append(Remedy("Or map the members by hand, without converting.", True, why))
    if any(file.kind == "npy" for file in files):
        remedies.append(Remedy("np.load(…, mmap_mode='r')", True, "maps the .npy file"))
    return tuple(remedies)


def _is_convertible(array: Array) -> bool:
    return not array.trouble and not array.pickled


def _next(files: tuple[ArrayFile, ...], *, tight: bool, unknown: bool) -> str | None:
    for file in files:
        if tight and file.kind == "npz" and any(map(_is_convertible, file.arrays)):
            return _conversion(file)
    damaged = [file for file in files if file.troubles or any(array.trouble for array in file.arrays)]
    if unknown and damaged:
        return f"{'python -m zipfile -t' if damaged[0].kind == 'npz' else 'ls -l'} {shlex.quote(damaged[0].path)}"
    return None


def _conversion(file: ArrayFile) -> str:
    return shlex.join(["harness", "npz", file.path, "--to-npy", file.path.removesuffix(".npz")])


def tell_bytes(count: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
