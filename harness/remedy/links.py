"""Files of an environment become links to other files of it, and files again: journalled, so that a kill does no harm.

Knows nothing of OpenMP: what should become a link is decided in openmp.py.

A link is symbolic and relative. The loader tells libraries apart by the file that it arrives at (glibc by device and
inode, dyld too where the paths differ), so either kind of link is loaded once; but a symbolic one is seen by everybody
who looks, follows the other file when its package is upgraded, and goes with its own package when that is removed.

Order of events, for each file: the journal names it, on disk before the first change; the original gets a second name
beside the first; the link is made under a third name, and renamed over the first. So its name never vanishes, a process
that runs keeps the file that it has mapped, and what has been done can be told from the files alone: the journal says
what was meant, and no step has to be ticked off in it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec
from msgspec import Struct

from harness.documents.openmp_fix import Link, Outcome
from harness.errors import HarnessError, Unreadable
from harness.evidence.text.answers import decode_json, read_bounded

JOURNAL = "harness-openmp-fix.json"
ORIGINAL = ".harness-original~"  # with a ~ at its end it is no library for anybody who looks for them
_NEW = ".harness-new~"
_UNDO = "harness openmp fix --undo"
State = Literal["original", "linked", "absent", "foreign"]
# Called before each change with its name; tests end the process there.
Hook = Callable[[str], None]


class Journal(Struct, frozen=True, tag_field="schema", tag="harness.openmp-fix/1"):
    links: tuple[Link, ...] = ()


def describe_link(prefix: Path, path: Path, target: Path) -> Link:
    """For files that have no symbolic link on their way."""
    status = path.stat()
    return Link(
        path=str(path.relative_to(prefix)),
        target=str(target.relative_to(prefix)),
        target_sha256=_hash(target),
        sha256=_hash(path),
        mode=stat.S_IMODE(status.st_mode),
        mtime_ns=status.st_mtime_ns,
    )


def read_journal(prefix: Path) -> Journal:
    """Empty when there is none."""
    path = prefix / JOURNAL
    try:
        journal = decode_json(read_bounded(path), Journal)
    except FileNotFoundError:
        return Journal()
    except (OSError, Unreadable) as error:
        raise HarnessError(
            f"cannot read the journal {path}: {error}", hint=f"the originals are beside the links, *{ORIGINAL}"
        ) from None
    for link in journal.links:
        for name in (link.path, link.target):
            if name.startswith("/") or ".." in PurePosixPath(name).parts:
                raise HarnessError(f"the journal {path} names a file outside of the environment: {name}", hint=_UNDO)
    return journal


def make_links(prefix: Path, links: tuple[Link, ...], hook: Hook = lambda step: None) -> Outcome:
    """Finishes what an earlier call has left, too. Raises before the first change when a file is not as described."""
    with _changing(prefix):
        journal = _merge(prefix, read_journal(prefix), links)
        todo = [link for link in journal.links if _check_applicable(prefix, link) != "linked"]
        for link in todo:
            _check_writable((prefix / link.path).parent)
        if todo:
            hook("journal")
            _write_journal(prefix, journal)
        for link in todo:
            _make(prefix, link, hook)
    return _outcome(journal, todo)


def undo_links(prefix: Path, hook: Hook = lambda step: None) -> Outcome:
    """Every file is as it was: content, mode and time. Raises before the first change when that cannot be done."""
    with _changing(prefix):
        journal = read_journal(prefix)
        begun = [link for link in journal.links if _is_begun(prefix, link)]
        todo = [link for link in begun if _check_undoable(prefix, link) != "original"]
        for link in begun:
            _restore(prefix, link, hook)
        hook("forget")
        for name in (JOURNAL, JOURNAL + _NEW):
            (prefix / name).unlink(missing_ok=True)
        _sync_directory(prefix)
    return _outcome(journal, todo)


def _outcome(journal: Journal, todo: list[Link]) -> Outcome:
    rest = (link.path for link in journal.links if link not in todo)
    return Outcome(tuple(link.path for link in todo), tuple(rest))


def _merge(prefix: Path, journal: Journal, links: tuple[Link, ...]) -> Journal:
    """What was begun before, and what is meant now; a link to a link is not made.

    What a newer package has put in the place of a link is described by `links`, and no longer by the journal.
    """
    described = {link.path for link in links}
    begun = (link for link in journal.links if _is_begun(prefix, link))
    kept = (link for link in begun if link.path not in described or read_state(prefix, link) != "foreign")
    known = {link.path: link for link in kept}
    for link in links:
        before = known.setdefault(link.path, link)
        if before.target != link.target:
            raise HarnessError(f"{link.path} is already to become a link to {before.target}", hint=_UNDO)
    both = {link.target for link in known.values()} & known.keys()
    if both:
        raise HarnessError(f"{min(both)} already serves other packages and cannot become a link itself", hint=_UNDO)
    return Journal(tuple(known.values()))


def _is_begun(prefix: Path, link: Link) -> bool:
    return read_state(prefix, link) == "linked" or _names(prefix, link)[1].exists()


def _make(prefix: Path, link: Link, hook: Hook) -> None:
    path, original, new = _names(prefix, link)
    if read_state(prefix, link) == "original":
        hook(f"keep {link.path}")
        _keep_original(path, original)
    hook(f"link {link.path}")
    new.unlink(missing_ok=True)
    new.symlink_to(os.path.relpath(prefix / link.target, path.parent))
    hook(f"replace {link.path}")
    new.replace(path)
    _sync_directory(path.parent)


def _keep_original(path: Path, original: Path) -> None:
    original.unlink(missing_ok=True)  # of a call that was ended: the same file
    try:
        original.hardlink_to(path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
            raise
        path.replace(original)  # a file system without hard links; `absent` until the link is there


def _restore(prefix: Path, link: Link, hook: Hook) -> None:
    path, original, new = _names(prefix, link)
    state = read_state(prefix, link)
    hook(f"restore {link.path}")
    new.unlink(missing_ok=True)
    if state == "original":
        original.unlink(missing_ok=True)
    else:
        status = original.stat()
        if stat.S_IMODE(status.st_mode) != link.mode:
            original.chmod(link.mode)
        if status.st_mtime_ns != link.mtime_ns:
            os.utime(original, ns=(status.st_atime_ns, link.mtime_ns))
        original.replace(path)
    _sync_directory(path.parent)


def read_state(prefix: Path, link: Link) -> State:
    """What is there now under the name of the file that becomes a link."""
    path = prefix / link.path
    if path.is_symlink():
        expected = os.path.relpath(prefix / link.target, path.parent)
        return "linked" if str(path.readlink()) == expected else "foreign"
    if not path.exists():
        return "absent"
    return "original" if _is(path, link.sha256) else "foreign"


def _check_applicable(prefix: Path, link: Link) -> State:
    state = read_state(prefix, link)
    if state == "foreign" or (state == "absent" and not _has_original(prefix, link)):
        raise _changed(prefix, link.path)
    if not _is(prefix / link.target, link.target_sha256) and state != "linked":
        raise _changed(prefix, link.target)
    return state


def _check_undoable(prefix: Path, link: Link) -> State:
    state = read_state(prefix, link)
    if state == "foreign" or (state != "original" and not _has_original(prefix, link)):
        raise _changed(prefix, link.path if state == "foreign" else link.path + ORIGINAL)
    return state


def _changed(prefix: Path, name: str) -> HarnessError:
    return HarnessError(
        f"{prefix / name} has changed since harness looked at it; nothing was touched",
        hint="harness openmp fix shows what there is now; to forget an earlier fix, reinstall the packages and remove "
        f"{prefix / JOURNAL}",
    )


def _has_original(prefix: Path, link: Link) -> bool:
    return _is(_names(prefix, link)[1], link.sha256)


def _names(prefix: Path, link: Link) -> tuple[Path, Path, Path]:
    path = prefix / link.path
    return path, path.with_name(path.name + ORIGINAL), path.with_name(path.name + _NEW)


def _is(path: Path, sha256: str) -> bool:
    return path.is_file() and not path.is_symlink() and _hash(path) == sha256


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextlib.contextmanager
def _changing(prefix: Path) -> Iterator[None]:
    """One at a time; and what the system refuses is one sentence."""
    try:
        descriptor = os.open(prefix, os.O_RDONLY)
    except OSError as error:
        raise HarnessError(f"cannot open {prefix}: {error.strerror}", hint="harness openmp fix --python PY") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise HarnessError(f"another harness is changing {prefix}", hint="try again when it has ended") from None
    except OSError as error:
        raise HarnessError(
            f"cannot change {error.filename or prefix}: {error.strerror}", hint=f"{_UNDO} takes back what was done"
        ) from error
    finally:
        os.close(descriptor)


def _check_writable(directory: Path) -> None:
    if not os.access(directory, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise HarnessError(f"cannot write in {directory}", hint="run it as the owner of the environment")


def _write_journal(prefix: Path, journal: Journal) -> None:
    _check_writable(prefix)
    path = prefix / JOURNAL
    new = path.with_name(path.name + _NEW)
    with new.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(journal), indent=1) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    _sync_directory(prefix)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
