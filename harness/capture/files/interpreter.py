"""Which native files are installed for an interpreter, and which distribution each one came with.

By RECORD and conda-meta, and by looking through site-packages for what nobody recorded. Reads no native file and runs
nothing but a probe in the interpreter itself; no .pth file and no sitecustomize of the user's is executed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from harness.capture.files.owners import (
    Owned,
    describe_distribution,
    differs_from,
    read_records,
    search_conda,
    search_dpkg,
    search_interpreter,
    search_rpm,
    split_line,
)
from harness.capture.files.permission import editable_source, refuse_python, why_no_imports
from harness.capture.files.scan_cache import Memory, ReadFolder, identity_of
from harness.capture.machine.payload import payload
from harness.capture.machine.trust import check_interpreter
from harness.errors import HarnessError, Unreadable
from harness.evidence.gap import Gap
from harness.evidence.text.answers import decode_json

_NATIVE = re.compile(r"\.(so|dylib|pyd|dll)(\.[\w.+-]+)*$")
_NATIVE_QUOTED = re.compile(rb'"([^"\\\n]+\.(?:so|dylib)(?:\.[0-9.]+)?)"')
_PYTHON_NAME = re.compile(r"(python|pypy)[0-9.]*[a-z]*(\.exe)?")
_PROGRAMS = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_SKIPPED = {"__pycache__", "node_modules"}
_MOST_FOLDERS = 50_000
_DEADLINE_S = 20


class Interpreter(Struct, frozen=True):
    """What probes/sites.py says. `sites`: where its packages are, those of PYTHONPATH first."""

    python: str
    platform: str
    executable: str
    prefix: str
    base_prefix: str
    stdlib: str
    sites: tuple[str, ...]


def find_python(word: str | None, *, imports: bool = False) -> str:
    """The interpreter that is meant; null: the one of the active environment, or python3 on PATH.

    NotOurs: it was not named, and another user could have written it, or what it would import.
    """
    python = locate_python(word)
    if word is None and Path(python).exists():
        if why := check_interpreter(str(Path(python).absolute())):
            raise refuse_python(python, why)
        if imports:
            _check_imports(python, ask_interpreter(python))
    return python


def locate_python(word: str | None) -> str:
    """Whether it may be run is not asked."""
    if word is None:
        for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
            if prefix := os.environ.get(variable):
                return str(Path(prefix, "bin", "python"))
        word = "python3"
    found = shutil.which(word) if "/" not in word else None
    if found is None and ("/" in word or Path(word).exists()):
        return word
    if found is None:
        raise HarnessError(f"There is no {word} on PATH.", hint="harness openmp --python /path/to/python3")
    return found


def ask_interpreter(python: str) -> Interpreter:
    """HarnessError: it is not a Python, or does not work."""
    _check_program(Path(python))
    if os.geteuid() == 0 and (why := check_interpreter(str(Path(python).absolute()))):
        raise refuse_python(python, why)
    command = [python, "-I", "-S", str(payload("probes/sites.py"))]
    try:
        answer = subprocess.run(
            command, capture_output=True, timeout=_DEADLINE_S, check=False, stdin=subprocess.DEVNULL
        )
        return decode_json(answer.stdout, Interpreter)
    except (OSError, subprocess.SubprocessError) as error:
        raise HarnessError(f"{python} could not be asked: {error}.", hint=f"{python} --version") from error
    except Unreadable as error:
        last = (answer.stderr.decode(errors="replace").strip().splitlines() or ["it gave no answer"])[-1]
        raise HarnessError(f"{python} is not a Python 3 that works: {last}", hint=f"{python} --version") from error


def ask_importing(python: str) -> Interpreter:
    """As ask_interpreter, before it is started with its packages."""
    interpreter = ask_interpreter(python)
    if os.geteuid() == 0:
        _check_imports(python, interpreter)
    return interpreter


def _check_imports(python: str, interpreter: Interpreter) -> None:
    if why := why_no_imports(interpreter.sites):
        raise refuse_python(python, why, interpreter.sites)


def _check_program(path: Path) -> None:
    """Before it is run: a script of the user's must not start only because it was named here."""
    hint = "harness openmp --python /path/to/bin/python3"
    if path.is_symlink() and not path.exists():
        prefix = path.parent.parent
        raise HarnessError(
            f"{path} is a link to {os.path.realpath(path)}, which is gone: the environment has lost its interpreter.",
            hint=f"python3 -m venv --upgrade {prefix}" if (prefix / "pyvenv.cfg").exists() else hint,
        )
    if path.is_dir():
        inside = path / "bin" / "python"
        better = f"harness openmp --python {inside}" if inside.exists() else hint
        raise HarnessError(f"{path} is a directory, not an interpreter.", hint=better)
    if not path.exists():
        raise HarnessError(f"{path} does not exist.", hint=hint)
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise HarnessError(f"{path} could not be read: {error.strerror}.", hint=f"ls -l {path}") from error
    shim = head[:2] == b"#!" and _PYTHON_NAME.fullmatch(path.name)  # of a version manager
    program = head in _PROGRAMS and "py" in path.name.lower()
    if not os.access(path, os.X_OK) or not (program or shim):
        raise HarnessError(f"{path} is not a Python interpreter.", hint=hint)


class Installed:
    """The native files of an interpreter's environment, each under the path it was found by, and their owners."""

    def __init__(self, interpreter: Interpreter, memory: Memory) -> None:
        self._interpreter = interpreter
        self._memory = memory
        self._visited: set[tuple[int, int]] = set()
        self._records: dict[str, tuple[Path, str]] = {}  # path -> *.dist-info, hash
        self._editable: dict[str, Path] = {}  # source folder -> *.dist-info
        self.gaps: list[Gap] = []
        self.files: list[str] = list(dict.fromkeys(self._list()))

    def find_owners(self, paths: Iterable[str]) -> dict[str, Owned]:
        left = set(paths)
        owned = {path: describe_distribution(info) for path in left if (info := self._dist_info(path)) is not None}
        prefixes = (self._interpreter.base_prefix, self._interpreter.prefix)
        for search in (
            search_conda,
            lambda paths: {
                path: owned for prefix in prefixes for path, owned in search_interpreter(paths, prefix).items()
            },
            search_dpkg,
            search_rpm,
        ):
            owned |= search(left - owned.keys())
        return owned

    def is_modified(self, path: str) -> bool | None:
        """Null: no RECORD has a hash for it."""
        return differs_from(self._records[path][1], path) if path in self._records else None

    def _dist_info(self, path: str) -> Path | None:
        if path in self._records:
            return self._records[path][0]
        return next((info for folder, info in self._editable.items() if path.startswith(folder + "/")), None)

    def _list(self) -> Iterator[str]:
        sites = list(dict.fromkeys(os.path.realpath(site) for site in self._interpreter.sites))
        for site in sites:
            yield from self._read_site(site)
        for site in sites:
            yield from self._walk(site)
        for folder in self._editable:
            yield from self._walk(folder)
        yield from _list_conda(Path(self._interpreter.prefix))

    def _read_site(self, site: str) -> Iterator[str]:
        """What the RECORDs say: the files outside of site-packages (…/lib/libiomp5.so) are known only from there."""
        for record, lines in read_records(site):
            for name, digest in map(split_line, lines):
                path = os.path.normpath(os.path.join(site, os.fsdecode(name)))  # noqa: PTH118
                if not _NATIVE.search(path):
                    continue
                self._records[path] = (record.parent, digest)
                if name.startswith(b"..") and os.path.exists(path):  # noqa: PTH110
                    yield path
            if source := editable_source(record.parent):
                self._editable[source] = record.parent

    def _walk(self, top: str) -> Iterator[str]:
        folders = [top]
        while folders:
            path = folders.pop()
            if len(self._visited) > _MOST_FOLDERS:
                self.gaps.append(Gap(f"native files below {top}", f"more than {_MOST_FOLDERS} folders"))
                return
            try:
                read = self._read_folder(path)
            except OSError as error:
                self.gaps.append(Gap(f"native files in {path}", error.strerror or str(error)))
                continue
            if read.identity.file in self._visited:
                continue
            self._visited.add(read.identity.file)
            yield from (f"{path}/{name}" for name in read.files)
            folders += (f"{path}/{name}" for name in reversed(read.folders))

    def _read_folder(self, path: str) -> ReadFolder:
        identity = identity_of(path)
        known = self._memory.folder(path, identity)
        if known is None:
            known = ReadFolder(identity, *_scan(path))
            self._memory.keep_folder(path, known)
        return known


def _scan(path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A folder with a pyvenv.cfg is another environment; one that begins with a dot no package, but .libs, .dylibs."""
    files, folders = [], []
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir():
                hidden = entry.name.startswith(".") and not entry.name.endswith("libs")
                if not hidden and entry.name not in _SKIPPED and not entry.name.endswith(".dist-info"):
                    folders.append(entry.name)
            elif entry.name == "pyvenv.cfg":
                return (), ()
            elif _NATIVE.search(entry.name):
                files.append(entry.name)
    return tuple(sorted(files)), tuple(sorted(folders))


def _list_conda(prefix: Path) -> Iterator[str]:
    for meta in sorted(prefix.glob("conda-meta/*.json")):
        with contextlib.suppress(OSError):
            for name in dict.fromkeys(_NATIVE_QUOTED.findall(meta.read_bytes())):
                path = os.path.join(prefix, os.fsdecode(name))  # noqa: PTH118
                if not name.startswith(b"/") and os.path.exists(path):  # noqa: PTH110
                    yield path
