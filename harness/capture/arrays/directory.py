"""The members of a zip archive, bounded: where each one's data lies, and whether they overlap. Reads no data.

zipfile does the reading; this asks before it does how large the list of members is, and checks what it does not.
"""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from itertools import pairwise
from typing import IO

from harness.errors import Unreadable

# A list of members of this size has half a million of them; it is read into memory whole.
_MOST_DIRECTORY_BYTES = 64 * 1024**2
_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCAL = struct.Struct("<4s5H3L2H")
_UNSET = 0xFFFFFFFF
# What zipfile and its decompressors say to members that are damaged, encrypted (RuntimeError), or of a kind unknown
# to them (NotImplementedError).
TORN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError, OSError, ValueError)


class BadArchive(Unreadable):
    """One sentence on what is wrong with it."""


def open_archive(file: IO[bytes], file_bytes: int) -> zipfile.ZipFile:
    size = _directory_bytes(file, file_bytes)
    if size > _MOST_DIRECTORY_BYTES:
        raise BadArchive(f"its list of members alone is {size:,} bytes long: no .npz looks like that")
    try:
        archive = zipfile.ZipFile(file)
    except TORN as error:
        raise BadArchive(f"its list of members is damaged ({error})") from error
    if not all(info.filename for info in archive.infolist()):
        raise BadArchive("its list has a member without a name")
    return archive


def _directory_bytes(file: IO[bytes], file_bytes: int) -> int:
    """PKWARE APPNOTE 4.3.14 to 4.3.16. BadArchive: there is no list, as in a file whose writing was interrupted."""
    tail = min(file_bytes, 65535 + _END.size)
    file.seek(file_bytes - tail)
    data = file.read(tail)
    at = data.rfind(b"PK\5\6")
    if at < 0 or len(data) - at < _END.size:
        raise BadArchive(
            "the list of members at its end is missing: it was not written to its end, or only a part of it was copied"
        )
    size = int(_END.unpack_from(data, at)[5])
    locator = file_bytes - tail + at - _LOCATOR.size
    if size != _UNSET or locator < 0:
        return size
    file.seek(locator)
    signature, _, record, _ = _LOCATOR.unpack(file.read(_LOCATOR.size))
    if signature != b"PK\6\7" or record + _END_64.size > file_bytes:
        return size
    file.seek(record)
    return int(_END_64.unpack(file.read(_END_64.size))[8])


def find_data(file: IO[bytes], info: zipfile.ZipInfo) -> int:
    """Where the member's data begins: only its own header, in front of it, tells."""
    file.seek(info.header_offset)
    data = file.read(_LOCAL.size)
    if len(data) < _LOCAL.size or not data.startswith(b"PK\3\4"):
        raise BadArchive("the list of members says it begins where no member does")
    fields = _LOCAL.unpack(data)
    return info.header_offset + _LOCAL.size + int(fields[9]) + int(fields[10])


def list_overlaps(spans: list[tuple[int, int, str]]) -> list[str]:
    """Names of members whose data (start, end) is that of another one too: how a small file becomes endless."""
    return [
        later[2] for earlier, later in pairwise(sorted(spans)) if later[0] < earlier[1] and earlier[0] != earlier[1]
    ]
