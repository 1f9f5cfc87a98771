"""May we run this file? Only if nobody but us and root could have written it, or could put another in its place.

The file, each link on the way to it and every directory above are looked at: whose they are, who may write there by
mode and by access list, and whether somebody else's file system only claims so (FUSE, a user namespace). What passes
cannot be swapped afterwards either, because that takes a right to write that nobody else has: so the path that is
returned, which has no links, is as good as a descriptor, and serves a script's interpreter too. Reads attributes only,
and runs nothing itself.
"""

from __future__ import annotations

import errno
import functools
import os
import re
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


def check_file(path: Path) -> str | None:
    """Why what is in this file may be another's; null: it is ours or root's."""
    try:
        _follow(str(path.absolute()))
    except _Refused as refusal:
        return str(refusal)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None


def find_program(name: str) -> str | None:
    """On PATH, and nobody but us and root could have written it."""
    found = shutil.which(name)
    return check_program(found).path if found else None


def check_interpreter(path: str) -> str | None:
    """Why this Python may not be started, isolated as it may be; null: it may, with all that it reads before any code.

    What pyvenv.cfg names as its home is where it takes its standard library from, also with -I and -S.
    """
    try:
        place = _follow(path)
        for folder in (Path(path).parent, Path(place).parent):
            for config in (folder / "pyvenv.cfg", folder.parent / "pyvenv.cfg"):
                if config.exists():
                    _follow(str(config))
                    _check_home(config)
            _check_library(folder.parent)
    except _Refused as refusal:
        return str(refusal)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None


def _check_home(config: Path) -> None:
    for line in config.read_text(errors="replace").splitlines():
        name, _, value = line.partition("=")
        if name.strip().lower() == "home":
            _check_library(Path(_follow(value.strip())).parent)


def _check_library(prefix: Path) -> None:
    """The standard library and libpython. Packages are not imported by what is started with -S."""
    for library in (*prefix.glob("lib*/python3*"), *prefix.glob("lib*/libpython*")):
        place = _follow(str(library))
        for where, folders, files in os.walk(place):
            folders[:] = [name for name in folders if name not in ("site-packages", "dist-packages")]
            for part in (*folders, *files):
                _check(f"{where}/{part}", os.lstat(f"{where}/{part}"))


def check_package(folder: Path, name: str) -> str | None:
    """Why this package may not be imported from there; null: it may, each file of it and of the libraries it brings."""
    try:
        place = _follow(str(folder))
        for top in (name, f"{name}.libs"):
            if top == name or Path(place, top).exists():
                _check(f"{place}/{top}", os.lstat(f"{place}/{top}"))
            for where, folders, files in os.walk(f"{place}/{top}"):
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
    if about.st_uid not in (0, os.geteuid()) or about.st_uid in _nobody():
        raise _Refused(f"{path} belongs to user {about.st_uid}")
    if about.st_dev in _claims_of_others():
        raise _Refused(f"{path} is in a file system of another user")
    if stat.S_ISLNK(about.st_mode) or (stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX):
        return
    others = about.st_mode & stat.S_IWOTH
    group = about.st_mode & stat.S_IWGRP  # with an access list: what any of its entries may have at most
    if others or (group and (_has_access_list(path) or not _is_own_group(about.st_gid))):
        raise _Refused(f"{path} can be written by others")


def _has_access_list(path: str) -> bool:
    """man 5 acl; of Linux only, where os has getxattr."""
    try:
        return bool(os.getxattr(path, "system.posix_acl_access", follow_symlinks=False))
    except (OSError, AttributeError):
        return False


@functools.cache
def _nobody() -> frozenset[int]:
    """In a user namespace whoever has no number in it is shown with this one, which is then nobody's (man 7)."""
    try:
        whole = Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
        return frozenset() if whole else frozenset({int(Path("/proc/sys/kernel/overflowuid").read_text())})
    except (OSError, ValueError):
        return frozenset()


@functools.cache
def _claims_of_others() -> frozenset[int]:
    try:
        return read_foreign_devices(Path("/proc/self/mountinfo").read_text(errors="replace"), os.geteuid())
    except OSError:
        return frozenset()


def read_foreign_devices(mounts: str, uid: int) -> frozenset[int]:
    """Of FUSE, where whoever has mounted it says whose the files are; man 5 proc_pid_mountinfo, man 8 mount.fuse."""
    found = set()
    for line in mounts.splitlines():
        place, _, what = line.partition(" - ")
        owner = re.search(r"\buser_id=(\d+)", what)
        if what.startswith("fuse") and owner and int(owner[1]) not in (0, uid):
            major, minor = map(int, place.split()[2].split(":"))
            found.add(os.makedev(major, minor))
    return frozenset(found)


def _is_own_group(gid: int) -> bool:
    """root's, or one that has its user's name, as most distributions make it; and nobody else is in it."""
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return gid == 0
    own = gid == 0 or (group.gr_gid == user.pw_gid and group.gr_name == user.pw_name)
    return own and set(group.gr_mem) <= {user.pw_name, "root"}
