"""The OpenMP and BLAS runtimes that are installed for an interpreter, and who is linked to which, without running any.

Reads native files, and remembers what it read (remembered.py). What an import really loads and binds depends on the
order of imports, which files cannot tell: that is the business of imports.py and of the live census.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.capture.files.binaries import Binary, read_binaries
from harness.capture.files.interpreter import Installed, Interpreter, ask_interpreter, find_python
from harness.capture.files.linking import Linker, Program, system_libraries
from harness.capture.files.owners import Owned
from harness.capture.files.scan_cache import Identity, Memory, ReadFile, default_place, identity_of
from harness.capture.openmp.startup import read_settings
from harness.evidence.gap import Gap
from harness.evidence.openmp import Binding, Blas, Caller, Census, Place, Runtime, Setting

__all__ = ["find_python", "take_environment_census"]

_MOST_NAMED = 5  # files in one gap


def take_environment_census(python: str, cache: Path | None = None) -> Census:
    """Of the interpreter at that path; `cache`: the file to remember in. HarnessError: it cannot be asked."""
    interpreter = ask_interpreter(python)
    memory = Memory(cache or default_place())
    installed = Installed(interpreter, memory)
    files = NativeFiles(memory, _read_program(interpreter, memory), set(installed.files))
    images = files.read_all(installed.files)
    linker = Linker(files.image, files.program, _library_path(), system_libraries(), images)
    bindings = {path: bound for path, image in images.items() if (bound := _bind(linker, files, path, image))}
    memory.save()
    reached = {path: files.image(path) for bound in bindings.values() for path in _runtimes_of(bound)}
    everything = images | {path: image for path, image in reached.items() if image is not None}
    return _assemble(interpreter, installed, files, everything, bindings)


class NativeFiles:
    """The images of native files, one for each file however many names it has: the loader takes those as one, too.

    Only what the interpreter could load counts: a universal file has one image for it, a foreign one none.
    """

    def __init__(self, memory: Memory, program: Program | None, installed: set[str]) -> None:
        self._memory = memory
        self._installed = installed
        self.program = program
        self._known: dict[str, tuple[Identity, Binary | None] | None] = {}
        self._names: dict[tuple[int, int], str] = {}
        self._folders: dict[str, str] = {}
        self.problems: dict[str, str] = {}

    def read_all(self, paths: Iterable[str]) -> dict[str, Binary]:
        """By the one name of each file."""
        found: dict[str, Binary] = {}
        for path in paths:
            if (image := self.image(path)) is not None:
                found.setdefault(self.name(path), image)
        return found

    def image(self, path: str) -> Binary | None:
        if path not in self._known:
            self._known[path] = self._look(path)
        known = self._known[path]
        return known[1] if known else None

    def name(self, path: str) -> str:
        """The one name under which this file is spoken of."""
        self.image(path)
        known = self._known[path]
        return self._names[known[0].file] if known else path

    def _look(self, path: str) -> tuple[Identity, Binary | None] | None:
        try:
            identity = identity_of(path)
        except (OSError, ValueError):
            return None
        first = self._names.setdefault(identity.file, self._choose_name(path))
        if first != path and first in self._known:
            return self._known[first]
        read = read_file(path, identity, self._memory)
        if read.problem is not None:
            self.problems[first] = read.problem
        known = (identity, next(filter(self._fits, read.images), None))
        self._known[first] = known
        return known

    def _choose_name(self, path: str) -> str:
        """Where a link leads, unless that is outside of the environment: a store of packages, owned by none."""
        target = self._resolve(path)
        return path if path in self._installed and target not in self._installed else target

    def _resolve(self, path: str) -> str:
        """os.path.realpath, which looks at every folder above for every file, once for each folder."""
        if os.path.islink(path):  # noqa: PTH114
            return os.path.realpath(path)
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return f"{self._folders[folder]}/{name}"

    def _fits(self, image: Binary) -> bool:
        if self.program is None:
            return True
        return (image.format, image.machine) == (self.program.binary.format, self.program.binary.machine)


def read_file(path: str, identity: Identity, memory: Memory) -> ReadFile:
    known = memory.file(path, identity)
    if known is None:
        try:
            known = ReadFile(identity, tuple(read_binaries(Path(path))))
        except (OSError, ValueError) as error:
            known = ReadFile(identity, (), str(error))
        memory.keep_file(path, known)
    return known


def _read_program(interpreter: Interpreter, memory: Memory) -> Program | None:
    """Null: the executable cannot be read; then nothing is known of its machine."""
    path = os.path.realpath(interpreter.executable)
    try:
        images = read_file(path, identity_of(path), memory).images
    except OSError:
        return None
    machine = interpreter.platform.rpartition("-")[2]
    if machine == "universal2":
        machine = platform.machine()
    image = next((image for image in images if image.machine == machine), images[0] if images else None)
    return Program(path, image) if image is not None else None


def _library_path() -> list[str]:
    text = os.environ.get("LD_LIBRARY_PATH", "") or os.environ.get("DYLD_LIBRARY_PATH", "")
    return [folder for folder in text.split(":") if folder]


def _bind(linker: Linker, files: NativeFiles, path: str, image: Binary) -> tuple[Binding, ...]:
    return tuple(
        Binding(binding.state, binding.symbols, files.name(binding.runtime) if binding.runtime else None)
        for binding in linker.bind(path, image)
    )


def _runtimes_of(bound: Iterable[Binding]) -> Iterator[str]:
    return (binding.runtime for binding in bound if binding.runtime is not None)


def _assemble(
    interpreter: Interpreter,
    installed: Installed,
    files: NativeFiles,
    images: dict[str, Binary],
    bindings: dict[str, tuple[Binding, ...]],
) -> Census:
    told = [path for path, image in images.items() if image.runtime or image.blas or path in bindings]
    owned = installed.find_owners(told)
    modified = {path: installed.is_modified(path) for path in told if images[path].runtime is not None}
    places = {path: _place(path, owned.get(path), modified.get(path)) for path in told}
    return Census(
        subject="environment",
        name=interpreter.executable,
        python=interpreter.python,
        platform=interpreter.platform,
        images=len(images),
        runtimes=tuple(
            Runtime(places[path], copy.family, copy.version, copy.static)
            for path in told
            if (copy := images[path].runtime)
        ),
        blas=tuple(_list_blas(images, places)),
        callers=tuple(Caller(places[path], bound) for path, bound in bindings.items()),
        settings=_settings(interpreter),
        gaps=(*installed.gaps, *_gap_of(files, installed)),
    )


def _settings(interpreter: Interpreter) -> tuple[Setting, ...]:
    return read_settings(os.environ, interpreter.sites, interpreter.prefix, interpreter.stdlib, _home())


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None


def _place(path: str, owned: Owned | None, modified: bool | None) -> Place:
    if owned is None:
        return Place(path)
    return Place(path, None, owned.distribution, owned.version, owned.owner, modified=modified)


def _list_blas(images: dict[str, Binary], places: dict[str, Place]) -> Iterator[Blas]:
    frameworks = {}
    for path, place in places.items():
        for copy in images[path].blas:
            if copy.kind == "accelerate":  # is not in the file, and not a file of its own either
                name = next(name for name in images[path].needed if ".framework/" in name)
                frameworks[name] = Blas(Place(name, owner="system"), copy.kind, copy.config)
            else:
                yield Blas(place, copy.kind, copy.config, copy.threading)
    yield from frameworks.values()


def _gap_of(files: NativeFiles, installed: Installed) -> Iterator[Gap]:
    """One for all the installed files that could not be read, the first of them named."""
    mine = set(map(files.name, installed.files)) if files.problems else set()
    named = [f"{path}: {problem}" for path, problem in files.problems.items() if path in mine]
    if named:
        more = f"; and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        yield Gap(f"{len(named)} native files", "; ".join(named[:_MOST_NAMED]) + more)
