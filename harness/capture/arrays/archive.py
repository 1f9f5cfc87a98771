"""What is in a .npz or .npy file, array by array: from its headers, whatever its size. Nothing is unpickled.

Of a compressed member the first bytes are decompressed, for its header. Says what a file is that is neither.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import stat
import zipfile
from pathlib import Path
from typing import IO

from harness.capture.arrays.directory import TORN, BadArchive, find_data, list_overlaps, open_archive
from harness.capture.arrays.header import MAGIC, BadHeader, Header, read_header
from harness.errors import HarnessError
from harness.evidence.arrays import Array, ArrayFile, Method

_METHODS: dict[int, Method] = {0: "stored", 8: "deflate", 12: "bzip2", 14: "lzma"}
_NAMES = {9: "deflate64", 93: "zstandard", 95: "xz", 99: "an encryption of its own"}
_ENCRYPTED = 1
_FOREIGN = (
    (b"\x89HDF\r\n", "an HDF5 file", "python -c 'import h5py; h5py.File({path}).visit(print)'"),
    (b"PAR1", "a Parquet file", "python -c 'import pyarrow.parquet as p; print(p.ParquetFile({path}).metadata)'"),
    (b"\x1f\x8b", "a gzip file", "gzip -l {path}"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "zstd -l {path}"),
    (b"\xfd7zXZ", "an xz file", "xz -l {path}"),
    (b"\x80", "a Python pickle", "python -m pickletools {path} | head"),
    (b"\x7fELF", "a program or library", "harness openmp"),
)
_TORCH = "python -c 'import torch; torch.load({path}, mmap=True, weights_only=True)'"


def read_array_file(path: Path) -> ArrayFile:
    """HarnessError: it cannot be read, or is something else; the sentence says what."""
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        file.seek(0)
        if start.startswith(MAGIC):
            return ArrayFile(str(path), "npy", size, (_read_npy(file, path, size),))
        if start.startswith((b"PK\3\4", b"PK\5\6")):
            return _read_npz(file, path, size)
        raise _refuse(path, start, size)


def _open(path: Path) -> IO[bytes]:
    """Without waiting for the other end of a FIFO."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        hint = f"ls -l {_quote(path.parent if error.errno == errno.ENOENT else path)}"
        raise HarnessError(f"{path} cannot be read: {error.strerror}.", hint=hint) from error
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(fd, "rb", buffering=4096)
    os.close(fd)
    what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
    hint = f"harness npz {_quote(path)}/*.npz" if stat.S_ISDIR(mode) else f"ls -l {_quote(path)}"
    raise HarnessError(f"{path} is {what}.", hint=hint)


def _fill_in(hint: str, path: Path) -> str:
    """A path inside of python -c '…' stands in the shell's quotes and in Python's."""
    in_python = "python -c" in hint
    return hint.format(path=json.dumps(str(path)).replace("'", "'\\''") if in_python else _quote(path))


def _quote(path: Path) -> str:
    return shlex.quote(str(path))


def _refuse(path: Path, start: bytes, size: int) -> HarnessError:
    if size == 0:
        return HarnessError(f"{path} is empty: nothing was ever written into it.", hint=f"ls -l {_quote(path)}")
    for magic, what, hint in _FOREIGN:
        if start.startswith(magic):
            return HarnessError(f"{path} is {what}, not a .npz or .npy file.", hint=_fill_in(hint, path))
    return HarnessError(
        f"{path} is neither a .npz nor a .npy file: it begins with {start!r}.", hint=f"file {_quote(path)}"
    )


def _read_npy(file: IO[bytes], path: Path, size: int) -> Array:
    try:
        header = read_header(file)
    except BadHeader as error:
        raise HarnessError(f"{path} is damaged: {error}.", hint=f"ls -l {_quote(path)}") from error
    there = size - header.bytes
    return _describe(path.stem, header, "stored", size, header.bytes, _tell_shortage(header, there))


def _tell_shortage(header: Header, there: int) -> str | None:
    if header.pickled or there == header.data_bytes:
        return None
    if there > header.data_bytes:
        return None  # numpy reads what the header names, and leaves the rest
    return (
        f"truncated: its header promises {header.data_bytes:,} bytes of data and {max(there, 0):,} are there "
        "(numpy sets all of the promised memory aside before it notices)"
    )


def _describe(
    name: str, header: Header, method: Method, file_bytes: int, offset: int | None, trouble: str | None
) -> Array:
    mappable = method == "stored" and not header.pickled and trouble is None and header.data_bytes > 0
    return Array(
        name=name,
        shape=header.shape,
        dtype=header.dtype,
        fortran_order=header.fortran_order,
        method=method,
        file_bytes=file_bytes,
        ram_bytes=None if header.pickled else header.data_bytes,
        offset=offset if mappable else None,
        aligned=offset is None or offset % header.alignment == 0,
        pickled=header.pickled,
        trouble=trouble,
    )


def _read_npz(file: IO[bytes], path: Path, size: int) -> ArrayFile:
    try:
        archive = open_archive(file, size)
    except BadArchive as error:
        raise HarnessError(f"{path} is a damaged zip archive: {error}.", hint=f"ls -l {_quote(path)}") from error
    members = [info for info in archive.infolist() if not info.is_dir()]
    names = [info.filename for info in members]
    if any(name.endswith(("/data.pkl", "/constants.pkl")) for name in names):
        hint = _fill_in(_TORCH, path)
        raise HarnessError(
            f"{path} is a file of torch.save, not of numpy.savez: {len(names)} members, {size:,} bytes. torch.load "
            "reads all of it into memory; with mmap=True it maps.",
            hint=hint,
        )
    arrays, others, spans = [], [], []
    for info in members:
        array, data_at = _read_member(archive, file, info)
        if array is None:
            others.append(info.filename)
            continue
        arrays.append(_mark_shadowed(array, info, archive))
        if data_at is not None:
            spans.append((data_at, data_at + info.compress_size, array.name))
    if not arrays:
        first = f", the first is {names[0]}" if names else ""
        what = f"{path} is a zip archive without an array: it has {len(names)} members{first}."
        raise HarnessError(what, hint=f"python -m zipfile -l {_quote(path)}")
    return ArrayFile(str(path), "npz", size, tuple(arrays), tuple(others), _list_troubles(spans))


def _list_troubles(spans: list[tuple[int, int, str]]) -> tuple[str, ...]:
    overlapping = list_overlaps(spans)
    if not overlapping:
        return ()
    return (
        f"{len(overlapping)} members share their bytes with another one (the first is {overlapping[0]}): no program "
        "writes that, it is a zip bomb or a forged file",
    )


def _read_member(archive: zipfile.ZipFile, file: IO[bytes], info: zipfile.ZipInfo) -> tuple[Array | None, int | None]:
    """(array, where its data lies); no array: numpy would hand out the bytes.

    The place is told of what cannot be read as well: since 3.11.8 zipfile itself refuses members that overlap.
    """
    name = info.filename.removesuffix(".npy")
    method = _METHODS.get(info.compress_type, "other")
    if trouble := _why_unreadable(info):
        return _unknown(name, info, method, trouble), None
    data_at = None
    try:
        data_at = find_data(file, info)
        with archive.open(info) as member:
            if not info.filename.endswith(".npy") and member.read(len(MAGIC)) != MAGIC:
                return None, data_at
            member.seek(0)
            header = read_header(member)
    except TORN as error:
        return _unknown(name, info, method, f"damaged: {error}"), data_at
    shortage = _tell_shortage(header, info.file_size - header.bytes)
    offset = data_at + header.bytes if method == "stored" else None
    return _describe(name, header, method, info.compress_size, offset, shortage), data_at


def _why_unreadable(info: zipfile.ZipInfo) -> str | None:
    if info.flag_bits & _ENCRYPTED:
        return "encrypted: numpy cannot read it"
    if info.compress_type not in _METHODS:
        name = _NAMES.get(info.compress_type, f"method {info.compress_type}")
        return f"compressed with {name}, which Python cannot read"
    return None


def _unknown(name: str, info: zipfile.ZipInfo, method: Method, trouble: str) -> Array:
    return Array(name, None, None, False, method, info.compress_size, None, trouble=trouble)


def _mark_shadowed(array: Array, info: zipfile.ZipInfo, archive: zipfile.ZipFile) -> Array:
    if archive.getinfo(info.filename) is info:
        return array
    from msgspec.structs import replace

    return replace(array, shadowed=True, trouble="shadowed: a later member has the same name, and numpy gives that one")
