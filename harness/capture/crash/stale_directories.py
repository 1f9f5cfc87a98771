"""Private directories in the temporary folder that a killed harness has left: removed by the next one, with care.

Only what is ours for certain: by name, owner and mode, of a process that is gone by number and start, and on whose
socket nobody listens any more (it may be in another pid namespace). Links are not followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
import time
from pathlib import Path

from harness.evidence.case import is_running

_NAME = re.compile(r"harness-(?P<pid>[1-9][0-9]{0,9})-(?P<start>[0-9]{1,19})-[0-9a-f]{8}")
_FILES = re.compile(r"link|libharness\.(?:so|dylib)")
_MOST = 64  # at a time: the command is waiting
_SETTLED_S = 60.0  # a younger one of another pid namespace may have no socket yet


def remove_leftovers(folder: Path) -> None:
    """Never fails; what somebody else removes at the same moment is gone as well."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        found = [entry.path for entry in entries if _is_leftover(entry)]
        for path in found[:_MOST]:
            with contextlib.suppress(OSError):
                _remove(Path(path))


def _is_leftover(entry: os.DirEntry[str]) -> bool:
    name = _NAME.fullmatch(entry.name)
    if name is None or is_running(int(name["pid"]), name["start"]):
        return False
    about = entry.stat(follow_symlinks=False)
    is_ours = about.st_uid == os.geteuid() and stat.S_IMODE(about.st_mode) == 0o700
    return stat.S_ISDIR(about.st_mode) and is_ours and time.time() - about.st_mtime > _SETTLED_S


def _remove(directory: Path) -> None:
    """OSError: there is something else in it, or it is gone."""
    names = os.listdir(directory)  # noqa: PTH208 (only names are wanted)
    if all(_FILES.fullmatch(name) for name in names) and not _is_listening(directory / "link"):
        for name in names:
            (directory / name).unlink()
        directory.rmdir()


def _is_listening(path: Path) -> bool:
    """Certainly not where the connection is refused, or there is no socket."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)
        return asking.connect_ex(os.fsencode(path)) not in (errno.ECONNREFUSED, errno.ENOENT)
