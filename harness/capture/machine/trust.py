"""May we run this file? Only if nobody but us and root could have written it, or could put another in its place.

The file, each link on the way to it and every directory above are looked at: whose they are, who may write there by
mode and by access list, and whether somebody else's file system only claims so (FUSE, a user namespace). What passes
cannot be swapped afterwards either, because that takes a right to write that nobody else has: so the path that is
returned, which has no links, is as good as a descriptor, and serves a script's interpreter too. Reads attributes only,
and runs nothing itself.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_MOST_LINKS = 40
_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_HISTORY = (".git", ".hg", ".svn")  # in a checkout: no import leads there


class Checked(NamedTuple):
    """`path`: without links; null where it must not be run, and then `why` says why."""

    path: str | None
    why: str | None = None


def check_program(path: str | os.PathLike[str], like: os.stat_result | None = None) -> Checked:
    """Of a relative path nothing can be said: the working directory may be anybody's.

    `like`: whoever can write what this is about is believed as well.
    """
    try:
        place = _follow(os.fspath(path), like)
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
    return look_for_program(name).path


def look_for_program(name: str) -> Checked:
    """The first of that name on PATH: one that may not be run is told, and none after it taken instead."""
    found = shutil.which(name)
    return check_program(found) if found else Checked(None, f"there is no {name} on PATH")


def find_tool(name: str) -> Checked:
    """Beside our interpreter first: that is where pip put it, whether or not the environment is activated.

    Whoever can write to that folder could have put another interpreter into it, and what is his runs already.
    """
    folder = Path(sys.executable or "/").parent
    beside_us, on_path = shutil.which(name, path=str(folder)), shutil.which(name)
    found = [check_program(beside_us, folder.stat())] if beside_us else []
    found += [check_program(on_path)] if on_path else []
    found += [Checked(None, f"{name} is neither in {folder} nor on PATH")]
    return next((one for one in found if one.path), found[0])


def read_safe_path() -> str:
    """PATH for a program that looks for others itself: only folders where nothing is, or can be put, by others."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    safe = [one for one in folders if one.startswith("/") and check_imports([one], deep=False) is None]
    return os.pathsep.join(dict.fromkeys(safe)) or os.defpath  # an empty one would be the working directory


def check_imports(places: Iterable[str | os.PathLike[str]], *, deep: bool = True) -> str | None:
    """Why nothing may be imported from these folders and archives; null: all that is in them may.

    Not deep: what lies in them is looked at, and not what is below that.
    """
    try:
        for place in places:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # nothing is imported from there
                _check_tree(_follow(os.fspath(place)), _HISTORY, deep=deep)
    except _Refused as refusal:
        return str(refusal)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None


def check_interpreter(path: str) -> str | None:
    """Why this Python may not be started, isolated as it may be; null: it may, with all that it reads before any code.

    What pyvenv.cfg names as its home is where it takes its standard library from, also with -I and -S.
    """
    try:
        place = _follow(path)
        for folder in dict.fromkeys((Path(path).parent, Path(place).parent)):
            for config in (folder / "pyvenv.cfg", folder.parent / "pyvenv.cfg"):
                if config.exists():
                    _follow(str(config))
                    _check_home(config)
            _check_libraries(folder)
    except _Refused as refusal:
        return str(refusal)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None


def _check_home(config: Path) -> None:
    for line in config.read_text(errors="replace").splitlines():
        name, _, value = line.partition("=")
        if name.strip().lower() == "home":
            _check_libraries(Path(_follow(value.strip())))


def _check_libraries(folder: Path) -> None:
    """The standard library and libpython: searched for upwards from the interpreter's folder (CPython, getpath.py).

    Packages are not imported by what is started with -S.
    """
    for prefix in (folder, *folder.parents):
        for library in (*prefix.glob("lib*/python3*"), *prefix.glob("lib*/libpython*")):
            _check_tree(_follow(str(library)), ("site-packages", "dist-packages"))
        if any(prefix.glob("lib*/python3*/os.py")):
            break


def check_package(folder: Path, name: str) -> str | None:
    """Why this package may not be imported from there; null: it may, each file of it and of the libraries it brings."""
    try:
        place = _follow(str(folder))
        for top in (name, f"{name}.libs"):
            if top == name or Path(place, top).exists():
                _check_tree(_follow(f"{place}/{top}"))
    except _Refused as refusal:
        return str(refusal)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return None


class _Refused(Exception):
    pass


def _check_tree(place: str, left_out: tuple[str, ...] = (), *, deep: bool = True) -> None:
    """All below, and what links in it lead to; one that leads nowhere is read by nobody."""
    waiting, seen = [place], set()
    while waiting:
        top = waiting.pop()
        if top in seen:
            continue
        seen.add(top)
        for where, folders, files in os.walk(top):
            if os.lstat(where).st_mode & stat.S_IWOTH:  # sticky or not: a name that is searched for can be added
                raise _Refused(f"{where} can be written by others")
            folders[:] = [name for name in folders if name not in left_out]
            for path in (f"{where}/{name}" for name in (*folders, *files)):
                about = os.lstat(path)
                _check(path, about)
                if stat.S_ISLNK(about.st_mode):
                    with contextlib.suppress(OSError):
                        waiting.append(_follow(path))
            if not deep:
                return


def _follow(path: str, like: os.stat_result | None = None) -> str:
    """Every step checked. OSError: there is no such file, or its links lead in a circle."""
    if not path.startswith("/"):
        raise _Refused(f"{path} is no absolute path")
    _check("/", os.lstat("/"), like)
    done, waiting, links = "", [part for part in path.split("/") if part], 0
    while waiting:
        part = waiting.pop(0)
        if part in (".", ".."):
            done = done.rpartition("/")[0] if part == ".." else done
            continue
        step = f"{done}/{part}"
        about = _look_at(step)
        _check(step, about, like)
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


def _look_at(step: str) -> os.stat_result:
    """What is missing where everybody may write could be there the next moment."""
    try:
        return os.lstat(step)
    except FileNotFoundError:
        if os.lstat(os.path.dirname(step)).st_mode & stat.S_IWOTH:  # noqa: PTH120
            raise _Refused(f"{step} can be made by others") from None
        raise


def _check(path: str, about: os.stat_result, like: os.stat_result | None = None) -> None:
    """In a sticky directory nobody can replace what is another's: what lies in it is looked at itself."""
    owners = {0, os.geteuid()} | ({like.st_uid} if like else set())
    if about.st_uid not in owners or about.st_uid in _nobody():
        raise _Refused(f"{path} belongs to user {about.st_uid}")
    if about.st_dev in _claims_of_others():
        raise _Refused(f"{path} is in a file system of another user")
    if stat.S_ISLNK(about.st_mode) or (stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX):
        return
    others = about.st_mode & stat.S_IWOTH
    group = about.st_mode & stat.S_IWGRP  # with an access list: what any of its entries may have at most
    if group and like and like.st_mode & stat.S_IWGRP and like.st_gid == about.st_gid:
        group = 0
    if others or (group and (_has_access_list(path) or not _is_own_group(about.st_gid, os.geteuid()))):
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


@functools.cache
def _is_own_group(gid: int, uid: int) -> bool:
    """One that has its user's name, as most distributions make it; and nobody else is in it, nor begins in it.

    Group 0 is nobody's own: containers start with it whoever has any number (OpenShift), and so do users of RHEL.
    Directories of users need not list them all; in a group of one user's name they put nobody else.
    """
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(uid)
    except KeyError:
        return False
    if gid == 0 or gid != user.pw_gid or group.gr_name != user.pw_name:
        return False
    everybody = pwd.getpwall()
    ours = {user.pw_name, *(entry.pw_name for entry in everybody if entry.pw_uid in (0, uid))}
    return {*group.gr_mem, *(entry.pw_name for entry in everybody if entry.pw_gid == gid)} <= ours
