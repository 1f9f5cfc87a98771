"""Whether an interpreter may import its packages: only if nobody but us and root could have written what it reads.

Root starts none but root's. Anybody else may name any interpreter, and means it; one that was merely found (PATH, an
active environment) has to be his own or root's. Asks trust.py, and runs nothing.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from harness.capture.machine.trust import check_imports
from harness.errors import NotOurs
from harness.evidence.text.answers import decode_json, read_bounded

_NO_FOLDER = ("#", "import ", "import\t")  # of lines in a .pth file; Lib/site.py


class _Directory(Struct, frozen=True):
    editable: bool = False


class _DirectUrl(Struct, frozen=True):
    url: str
    dir_info: _Directory = _Directory()


def why_no_imports(sites: Sequence[str]) -> str | None:
    """Null: what is in these folders, and what they and the environment lead to, may be imported."""
    return check_imports([*sites, *_list_by_variables()]) or check_imports(_list_elsewhere(sites))


def refuse_python(python: str, why: str, sites: Iterable[str] = ()) -> NotOurs:
    """With the same command, for whom it may run; or as the user's own word."""
    again = ["harness", *sys.argv[1:]]
    if not any(word.partition("=")[0] == "--python" for word in again):
        again += ["--python", python]
    if os.geteuid() != 0:
        return NotOurs(f"{python} was found, not named, and is not run: {why}.", hint=shlex.join(again))
    owner = next(filter(None, map(_name_owner, (python, *sites))), "USER")
    return NotOurs(f"{python} is not run by root: {why}.", hint=shlex.join(["sudo", "-u", owner, *again]))


def _name_owner(path: str) -> str | None:
    """Null: root, and then it is somebody else for whom it may be run; or nobody who has a name."""
    with contextlib.suppress(KeyError, OSError):
        return Path(path).owner() if Path(path).stat().st_uid else None
    return None


def _list_by_variables() -> Iterator[str]:
    """What an interpreter that is not isolated reads beside its own; man 1 python."""
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONPYCACHEPREFIX"):
        for entry in os.environ.get(name, "").split(os.pathsep) if os.environ.get(name) else ():
            yield os.path.abspath(entry)  # noqa: PTH100 (an empty one is the working directory)


def _list_elsewhere(sites: Iterable[str]) -> Iterator[str]:
    """Where .pth files and editable installations lead to."""
    for site in map(Path, sites):
        for listing in site.glob("*.pth"):
            with contextlib.suppress(OSError):
                for line in listing.read_text(errors="replace").splitlines():
                    if line.strip() and not line.startswith(_NO_FOLDER):
                        yield os.path.abspath(site / line.strip())  # noqa: PTH100 (links are trust.py's)
        for record in site.glob("*.dist-info"):
            if source := editable_source(record):
                yield source


def editable_source(dist_info: Path) -> str | None:
    """PEP 610; null: a plain installation."""
    with contextlib.suppress(OSError, ValueError):
        said = decode_json(read_bounded(dist_info / "direct_url.json"), _DirectUrl)
        if said.dir_info.editable:
            folder = os.path.realpath(unquote(urlsplit(said.url).path))
            return folder if Path(folder).is_dir() else None
    return None
