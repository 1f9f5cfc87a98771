"""Arrays that can be mapped: writes each array of a .npz as a .npy file of its own. Streaming, checked, all or nothing.

A member of a .npz is a .npy file already: it is copied, not loaded. What is there is never overwritten.
"""

from __future__ import annotations

import os
import shutil
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from harness.documents.npz_conversion import Conversion, LeftOut, Written
from harness.errors import HarnessError
from harness.evidence.arrays import Array, ArrayFile

_PIECE = 1 << 20
# Names, block lists and what else a file system keeps beside the data.
_SPARE_BYTES = 16 * 1024**2


def convert(file: ArrayFile, directory: Path) -> Conversion:
    """HarnessError: nothing was written."""
    if file.kind == "npy":
        raise HarnessError(f"{file.path} can be mapped as it is.", hint=f"np.load({file.path!r}, mmap_mode='r')")
    chosen = [array for array in file.arrays if not _why_left_out(array)]
    left_out = tuple(LeftOut(array.name, why) for array in file.arrays if (why := _why_left_out(array)))
    if not chosen:
        raise HarnessError(f"No array of {file.path} can be converted.", hint=f"harness npz {file.path}")
    targets = {array.name: _find_target(array.name, directory, file.path) for array in chosen}
    _check_clashes(targets)
    made = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _check_room(chosen, directory)
        written = _write_all(Path(file.path), targets, directory)
    except (OSError, HarnessError) as error:
        if made:
            shutil.rmtree(directory, ignore_errors=True)
        if isinstance(error, HarnessError):
            raise
        raise HarnessError(f"{directory} cannot be written: {error.strerror}.", hint=f"df -h {directory}") from error
    return Conversion(str(directory), written, left_out)


def _why_left_out(array: Array) -> str | None:
    if array.trouble:
        return array.trouble
    return "pickled objects cannot be mapped" if array.pickled else None


def _find_target(name: str, directory: Path, source: str) -> Path:
    """Inside the directory, also where a link in it leads elsewhere; nothing that is there already."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    target = directory.joinpath(*parts).with_name(f"{parts[-1]}.npy") if parts else directory
    escapes = not parts or ".." in parts or parts[0].startswith("/") or "\0" in name
    if escapes or not target.parent.resolve().is_relative_to(directory.resolve()):
        what = f"The array {name!r} of {source} would be written outside of {directory}: nothing was written."
        raise HarnessError(what, hint=f"harness npz {source}")
    if os.path.lexists(target):
        what = f"{target} is there already, and nothing is overwritten: nothing was written."
        raise HarnessError(what, hint=f"harness npz {source} --to-npy {directory}-2")
    return target


def _check_clashes(targets: dict[str, Path]) -> None:
    """Two names for one file: "a" and "./a"."""
    for name, target in targets.items():
        other = next((o for o, t in targets.items() if t == target and o != name), None)
        if other is not None:
            raise HarnessError(f"{name!r} and {other!r} would both become {target}.", hint="python -m zipfile -l FILE")


def _check_room(arrays: list[Array], directory: Path) -> None:
    needed = sum(array.ram_bytes or 0 for array in arrays) + _SPARE_BYTES
    room = os.statvfs(directory)
    free = room.f_bavail * room.f_frsize
    if needed > free:
        what = f"The arrays need {needed:,} bytes and {directory} has room for {free:,}: nothing was written."
        raise HarnessError(what, hint=f"df -h {directory}")


def _write_all(source: Path, targets: dict[str, Path], directory: Path) -> tuple[Written, ...]:
    """Beside their places first, into them only when all are whole."""
    partial = directory / f".harness-{os.urandom(4).hex()}.part"
    partial.mkdir(mode=0o700)
    try:
        written = []
        with zipfile.ZipFile(source) as archive:
            for number, (name, target) in enumerate(targets.items()):
                info = _find_info(archive, name)
                _copy(archive, info, partial / str(number))
                written.append(Written(name, str(target), info.file_size))
        for number, target in enumerate(targets.values()):
            target.parent.mkdir(parents=True, exist_ok=True)
            _put(partial / str(number), target)
        return tuple(written)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _find_info(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    try:
        return archive.getinfo(f"{name}.npy")
    except KeyError:
        return archive.getinfo(name)


def _copy(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> None:
    """zipfile compares the checksum when it comes to the end. Zeros become holes, which need no disk."""
    size = 0
    try:
        with archive.open(info) as member, path.open("xb") as file:
            while piece := member.read(_PIECE):
                size += len(piece)
                if piece.count(0) == len(piece):
                    file.seek(len(piece), os.SEEK_CUR)
                else:
                    file.write(piece)
            file.truncate(size)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        what = f"The array {info.filename.removesuffix('.npy')} is damaged ({error}): nothing was written."
        raise HarnessError(what, hint=f"python -m zipfile -t {archive.filename}") from error
    if size != info.file_size:
        what = f"The array {info.filename.removesuffix('.npy')} has {size:,} of {info.file_size:,} bytes."
        raise HarnessError(what, hint=f"python -m zipfile -t {archive.filename}")


def _put(partial: Path, target: Path) -> None:
    """A rename would replace what somebody else has put there meanwhile; a link does not."""
    try:
        os.link(partial, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        partial.rename(target)
