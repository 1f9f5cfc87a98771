"""The case directory: raw files, evidence.json, verdict.json, report.txt; private, bounded in number and size.

Knows nothing of what is in them beyond their types. The directory may be anybody's: whatever else lies there is left
alone, and others may add and remove cases at any moment.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import BadCase, CouldNotStart

MOST_CASES = 50
MOST_BYTES = 2 * 1024**3
# Of room, or of a disk that takes nothing now: no fault of the directory that was named.
EXHAUSTED = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
# A core that is there only because of us must leave room for other cases.
MOST_CORE_BYTES = MOST_BYTES // 2
_SCHEMA = "harness.case/1"
_MARKER = "case.json"
_ELSEWHERE = "harness-cases"  # in a temporary folder
_MOST_MARKER_BYTES = 16 << 20  # the longest command line has 6 MiB
_STAMP = "%Y%m%dT%H%M%S"
_NAME = re.compile(r"(\d{8}T\d{6})Z?-[0-9a-f]{4,}")


def default_cases_dir() -> Path:
    if chosen := os.environ.get("HARNESS_CASES"):
        return Path(chosen)
    import platformdirs

    usual = Path(platformdirs.user_state_dir("harness")) / "cases"
    if not is_anothers(usual):
        return usual
    import pwd

    return Path(pwd.getpwuid(os.geteuid()).pw_dir, ".local/state/harness/cases")


def is_anothers(path: Path) -> bool:
    """Whether it is, or would be made, below a folder that another user owns: who could put a link in its place.

    Root gets there with somebody's HOME or TMPDIR in its environment.
    """
    for above in (path, *path.parents):
        with contextlib.suppress(OSError):
            if above.lstat().st_uid not in (0, os.geteuid()):
                return True
    return False


def create_case(chosen: str | None, argv: list[str], started_ns: int) -> tuple[Path, str | None]:
    """Makes a private directory and marks it incomplete. Returns it and, if it is not where expected, why.

    A directory the user named must work; the default one gives way to a temporary one, so that a read-only home
    does not keep a training job from starting.
    """
    wanted = Path(chosen) if chosen else default_cases_dir()
    try:
        return _create_in(wanted, argv, started_ns), None
    except OSError as error:
        trouble = f"Cases cannot be kept in {wanted}: {error.strerror}"
        if (chosen or "HARNESS_CASES" in os.environ) and error.errno not in EXHAUSTED:
            hint = f"harness run --cases /tmp/cases -- {' '.join(argv)}"
            raise CouldNotStart(f"{trouble}.", hint=hint) from error
    for elsewhere in _list_temporary():
        with contextlib.suppress(OSError):
            elsewhere = _own_directory(elsewhere / f"{_ELSEWHERE}-{os.geteuid()}")
            return _create_in(elsewhere, argv, started_ns), f"{trouble}; this one is kept in {elsewhere}."
    return wanted / f"none-{os.urandom(4).hex()}", f"{trouble}, nor in any temporary folder: there will be none."


def make_private_directories(prefix: str) -> Iterator[Path]:
    """For this user only, each in another temporary folder: the user's own first, which may be missing or full.

    Whoever takes the next one could not use the last, which is gone then. tempfile does the same for 10 ms of imports.
    """
    for folder in _list_temporary():
        path = folder / f"{prefix}-{name_own()}"
        try:
            path.mkdir(mode=0o700)
        except OSError:
            continue
        yield path
        with contextlib.suppress(OSError):
            path.rmdir()


def _list_temporary() -> Iterator[Path]:
    folders = (os.environ.get("TMPDIR") or "/tmp", "/tmp", "/var/tmp", "/dev/shm")
    for folder in dict.fromkeys(folders):
        if not is_anothers(path := Path(folder).absolute()):
            yield path


def _own_directory(path: Path) -> Path:
    """One for all runs of this user, so that what is kept there stays within its bounds. OSError: it is not his alone.

    Whoever has taken the name first has made what is no private directory of ours.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    about = path.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    return path


def _create_in(cases_dir: Path, argv: list[str], started_ns: int) -> Path:
    cases_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    stamp = time.strftime(_STAMP, time.gmtime())
    while True:
        case = (cases_dir / f"{stamp}Z-{os.urandom(4).hex()}").absolute()
        try:
            case.mkdir(mode=0o700)
            break
        except FileExistsError:
            continue
    try:
        mark_case(case, argv, started_ns, complete=False)
    except OSError:
        remove_case(case)
        raise
    return case


def mark_case(case: Path, argv: list[str], started_ns: int, *, complete: bool) -> None:
    """Written first with complete false: a supervisor that is killed leaves exactly that behind.

    The command line comes with the rest: what redacts it is loaded when there is something to report.
    """
    document: dict[str, Any] = {
        "schema": _SCHEMA,
        "complete": complete,
        "supervisor_pid": os.getpid(),
        "supervisor_start": read_start(os.getpid()),
        "node": os.uname().nodename,
        "started_ns": started_ns,
    }
    if complete:
        from harness.evidence.text.redaction import is_on, redact_argv
        from harness.evidence.text.undecoded import restore_bytes

        document["argv"] = list(map(restore_bytes, redact_argv(argv)))
        document |= {} if is_on() else {"redacted": False}
    write_file(case / _MARKER, json.dumps(document).encode() + b"\n")


def write_file(path: Path, data: bytes) -> None:
    """Whole or not at all."""
    partial = path.with_name(path.name + ".part")
    try:
        partial.touch(mode=0o600)
        partial.write_bytes(data)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def is_complete(case: Path) -> bool:
    """BadCase: it is none of ours, or damaged."""
    return bool(read_marker(case)["complete"])


def is_being_written(case: Path) -> bool:
    """By a supervisor that lives. Only its own machine can tell: in a home that several share, others let it be."""
    told = read_marker(case)
    if told["complete"]:
        return False
    return told.get("node", os.uname().nodename) != os.uname().nodename or is_running(
        told["supervisor_pid"], told.get("supervisor_start")
    )


def read_marker(case: Path) -> dict[str, Any]:
    """BadCase: not a file, too long, or not what `mark_case` writes."""
    from harness.evidence.text.answers import read_bounded

    try:
        told = json.loads(read_bounded(case / _MARKER, _MOST_MARKER_BYTES, follow=False))
    except (OSError, ValueError, RecursionError) as error:
        raise BadCase(f"{case} is not a case: {error}", hint=f"ls {case}") from error
    types = {"schema": str, "complete": bool, "supervisor_pid": int}
    if not isinstance(told, dict) or any(type(told.get(key)) is not kind for key, kind in types.items()):
        raise BadCase(f"{case} is not a case: its {_MARKER} says something else", hint=f"ls {case}")
    if told["schema"] != _SCHEMA:
        raise BadCase(f"{case} is of another version: {told['schema']}", hint=f"ls {case}")
    return told


def remove_case(case: Path) -> None:
    import shutil

    shutil.rmtree(case, ignore_errors=True)
    if case.parent.name == f"{_ELSEWHERE}-{os.geteuid()}":
        with contextlib.suppress(OSError):  # others are in it
            case.parent.rmdir()


def prune_cases(cases_dir: Path, own: Path) -> None:
    """Keeps `own` and the newest complete cases within the bounds. One that is still being written is never touched."""
    kept, kept_bytes = 1, _size_of(own)
    for case in sorted(_finished_cases(cases_dir), key=_age, reverse=True):
        if case.name == own.name:
            continue
        kept, kept_bytes = kept + 1, kept_bytes + _size_of(case)
        if kept > MOST_CASES or kept_bytes > MOST_BYTES:
            remove_case(case)


def _age(case: Path) -> tuple[bool, str]:
    """In order of time. The clock has been set back since one was made that seems to come from the future."""
    stamp = case.name[:15]
    return stamp <= time.strftime(_STAMP, time.gmtime()), case.name


def _size_of(case: Path) -> int:
    """Of what is there: somebody else may be removing it."""
    size = 0
    with contextlib.suppress(OSError):
        for file in case.iterdir():
            with contextlib.suppress(OSError):
                size += file.lstat().st_size
    return size


def _finished_cases(cases_dir: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError), os.scandir(cases_dir) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(BadCase):
                    if not is_being_written(case := cases_dir / entry.name):
                        yield case


def name_own() -> str:
    """What the next one knows it by, if we are killed and it stays behind (capture/crash/stale_directories.py)."""
    return f"{os.getpid()}-{read_start(os.getpid()) or 0}-{os.urandom(4).hex()}"


def read_start(pid: int) -> str | None:
    """In ticks since the boot: number and start are one process. Null: there is no /proc, or it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return None


def is_running(pid: int, start: object) -> bool:
    """Not so when its number belongs to another one by now. `start` null: only the number is known."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return start is None or read_start(pid) in (start, None)
