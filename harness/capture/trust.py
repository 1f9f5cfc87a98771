"""May we run this file? Only if nobody but us and root could have written it, or could put another in its place.

The file, each link on the way to it and every directory above are looked at: whose they are and who may write there.
Whoever passes cannot be swapped afterwards either, because that takes a right to write that nobody else has. What has
been passed is run by the path that is returned, which has no links. Reads attributes only, and runs nothing itself.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

_MOST_LINKS = 40
_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Checked(NamedTuple):
    """`path`: without links; null where it must not be run, and then `why` says why."""

    path: str | None
    why: str | None = None


def check_program(path: str | os.PathLike[str]) -> Checked:
    """Of a relative path nothing can be said: the working directory may be anybody's."""
    try:
        place = _follow(os.fspath(path))
        about = os.stat(place)  # noqa: PTH116 (a str, as everywhere here)
    except _Refused as refusal:
        return Checked(None, str(refusal))
    except OSError as error:
        return Checked(None, f"{os.fspath(path)}: {error.strerror}")
    if not stat.S_ISREG(about.st_mode) or not about.st_mode & 0o111:
        return Checked(None, f"{place} is no program")
    return Checked(place)


def find_program(name: str) -> str | None:
    """On PATH, and nobody but us and root could have written it."""
    found = shutil.which(name)
    return check_program(found).path if found else None


def check_package(folder: Path, name: str) -> str | None:
    """Why this package may not be imported from there; null: it may, each file of it."""
    try:
        place = _follow(str(folder))
        for part in os.listdir(place):  # noqa: PTH208 (only names are wanted)
            _check(f"{place}/{part}", os.lstat(f"{place}/{part}"))
        for where, folders, files in os.walk(f"{place}/{name}"):
            for part in (*folders, *files):
                _check(f"{where}/{part}", os.lstat(f"{where}/{part}"))
    except _Refused as refusal:
        return str(refusal)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return None


class _Refused(Exception):
    pass


def _follow(path: str) -> str:
    """Every step checked. OSError: there is no such file, or its links lead in a circle."""
    if not path.startswith("/"):
        raise _Refused(f"{path} is no absolute path")
    _check("/", os.lstat("/"))
    done, waiting, links = "", [part for part in path.split("/") if part], 0
    while waiting:
        part = waiting.pop(0)
        if part in (".", ".."):
            done = done.rpartition("/")[0] if part == ".." else done
            continue
        step = f"{done}/{part}"
        about = os.lstat(step)
        _check(step, about)
        if not stat.S_ISLNK(about.st_mode):
            done = step
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = os.readlink(step)  # noqa: PTH115
        done = "" if target.startswith("/") else done
        waiting[:0] = [part for part in target.split("/") if part]
    return done or "/"


def _check(path: str, about: os.stat_result) -> None:
    """In a sticky directory nobody can replace what is another's: what lies in it is looked at itself."""
    if about.st_uid not in (0, os.geteuid()):
        raise _Refused(f"{path} belongs to user {about.st_uid}")
    if stat.S_ISLNK(about.st_mode) or (stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX):
        return
    if about.st_mode & stat.S_IWOTH or (about.st_mode & _BY_OTHERS and not _is_own_group(about.st_gid)):
        raise _Refused(f"{path} can be written by others")


def _is_own_group(gid: int) -> bool:
    """root's, or one that has its user's name and nobody else in it, as most distributions make it."""
    if gid == 0:
        return True
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return group.gr_gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
