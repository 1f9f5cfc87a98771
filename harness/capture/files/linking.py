"""Which file is meant when a native file asks for a library by name, and which one serves its OpenMP calls.

The rules are those of ld.so(8) and dyld(1), on files alone: what an earlier import has loaded is not known here.
Works on any set of files (an environment, the contents of wheels) through the function that reads one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from posixpath import basename, dirname, join, normpath
from typing import NamedTuple, Optional

from harness.capture.files.binaries import Binary, Call
from harness.evidence.openmp import Binding

# The image at a path, for the machine in question; null: no such file.
ReadImage = Callable[[str], Optional[Binary]]  # noqa: UP045 (evaluated, on other hosts by Python 3.9 too)

_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_MOST_CACHED = 1 << 18
_DEFAULT_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")
_MOST_LIBRARIES = 512


class Program(NamedTuple):
    """The interpreter: its own search path holds for what it loads."""

    path: str
    binary: Binary


class Linker:
    """`library_path`: LD_LIBRARY_PATH or DYLD_LIBRARY_PATH; `system`: name to paths, as the loader's cache has them.

    `images`: all files that there are, by path: who loads a library may have a search path for what that one needs.
    """

    def __init__(
        self,
        read: ReadImage,
        program: Program | None = None,
        library_path: Sequence[str] = (),
        system: Callable[[str], Sequence[str]] = lambda name: (),
        images: Mapping[str, Binary] | None = None,
    ) -> None:
        self._read = read
        self._program = program
        self._library_path = tuple(library_path)
        self._system = system
        self._images = images or {}

    def bind(self, path: str, binary: Binary) -> tuple[Binding, ...]:
        """Where the OpenMP calls of a file lead. A weak call that leads nowhere is none."""
        found: dict[str | None, set[str]] = {}
        for call in binary.calls:
            for runtime, symbols in self._serve(path, binary, call):
                if runtime is not None or not call.weak:
                    found.setdefault(runtime, set()).update(symbols)
        return tuple(
            Binding("unresolved" if runtime is None else "linked", tuple(sorted(symbols)), runtime)
            for runtime, symbols in found.items()
        )

    def find(self, name: str, path: str, binary: Binary, inherited: Sequence[str] = ()) -> str | None:
        """The file that `path` gets when it asks for `name`; `inherited`: the search path of those that load it."""
        return next((place for place in self._places(name, path, binary, inherited) if self._fits(place, binary)), None)

    def _fits(self, place: str, binary: Binary) -> bool:
        other = self._read(place)
        return other is not None and (other.format, other.machine) == (binary.format, binary.machine)

    def _serve(self, path: str, binary: Binary, call: Call) -> Iterator[tuple[str | None, set[str]]]:
        if call.library is not None:
            inherited = tuple(self._passed_on(path, binary))
            yield self.find(call.library, path, binary, inherited), set(call.symbols)
            return
        left = set(call.symbols)
        for place in self._closure(path, binary):
            other = self._read(place)
            if other is not None and (served := left.intersection(other.defines)):
                yield place, served
                left -= served
        if left:
            yield None, left

    def _closure(self, path: str, binary: Binary) -> Iterator[str]:
        """What the file needs, breadth first, as the loader looks through it for a symbol."""
        queue = [(path, binary, tuple(self._passed_on(path, binary)))]
        seen = {path}
        for place, image, inherited in queue:
            passed_on = (*inherited, *_expanded(image, place, self._program)) if image.rpaths_pass_on else inherited
            for name in image.needed:
                found = self.find(name, place, image, inherited)
                if found is None or found in seen or len(seen) > _MOST_LIBRARIES:
                    continue
                seen.add(found)
                yield found
                if (other := self._read(found)) is not None:
                    queue.append((found, other, passed_on))

    def _passed_on(self, path: str, binary: Binary) -> Iterator[str]:
        """The search path of those that need this file; faiss's OpenBLAS finds its libgomp through that of libfaiss."""
        for parent, name in self._parents.get(basename(path), ()):
            image = self._images[parent]
            found = self.find(name, parent, image) if image.rpaths_pass_on else None
            if found is not None and self._read(found) is binary:
                yield from _expanded(image, parent, self._program)

    @cached_property
    def _parents(self) -> dict[str, list[tuple[str, str]]]:
        """(path, the name it asks for) by the last part of that name."""
        found: dict[str, list[tuple[str, str]]] = {}
        for path, image in self._images.items():
            for name in image.needed:
                found.setdefault(basename(name), []).append((path, name))
        return found

    def _places(self, name: str, path: str, binary: Binary, inherited: Sequence[str]) -> Iterator[str]:
        if binary.format == "elf":
            yield from self._elf_places(name, path, binary, inherited)
        elif binary.format == "macho":
            yield from self._macho_places(name, path, binary, inherited)
        else:
            yield from self._pe_places(name, path)

    def _elf_places(self, name: str, path: str, binary: Binary, inherited: Sequence[str]) -> Iterator[str]:
        if "/" in name:
            yield normpath(name.replace("$ORIGIN", dirname(path)))
            return
        own = _expanded(binary, path)
        of_program = self._program_rpaths()
        if binary.rpaths_pass_on:
            folders = [*own, *inherited, *of_program, *self._library_path]
        else:
            folders = [*self._library_path, *own]
        for folder in folders:
            yield normpath(join(folder, name))
        yield from self._system(name)

    def _macho_places(self, name: str, path: str, binary: Binary, inherited: Sequence[str]) -> Iterator[str]:
        base = name.rpartition("/")[2]
        for folder in self._library_path:
            yield join(folder, base)
        if name.startswith("@rpath/"):
            for folder in (*_expanded(binary, path, self._program), *inherited, *self._program_rpaths()):
                yield normpath(join(folder, name[len("@rpath/") :]))
        else:
            yield normpath(_expand(name, path, self._program))
        yield from self._system(base)

    def _pe_places(self, name: str, path: str) -> Iterator[str]:
        """Beside it, or wherever a package has put it: Windows knows one DLL of each name in a process."""
        yield join(dirname(path), name)
        wanted = name.lower()
        yield from sorted(
            (other for other in self._images if basename(other).lower() == wanted),
            key=lambda other: dirname(other) != dirname(path),
        )

    def _program_rpaths(self) -> list[str]:
        if self._program is None or (self._program.binary.format == "elf" and not self._program.binary.rpaths_pass_on):
            return []
        return _expanded(self._program.binary, self._program.path, self._program)


def _expanded(binary: Binary, path: str, program: Program | None = None) -> list[str]:
    return [_expand(folder, path, program) for folder in binary.rpaths if folder]


def _expand(text: str, path: str, program: Program | None) -> str:
    here = dirname(path)
    for word in ("$ORIGIN", "${ORIGIN}", "@loader_path"):
        text = text.replace(word, here)
    return text.replace("@executable_path", dirname(program.path) if program else "@executable_path")


def read_loader_cache(file: Path = Path("/etc/ld.so.cache")) -> dict[str, list[str]]:
    """Name to paths, for every machine it has; ldconfig(8), glibc's dl-cache.h. Empty where there is none."""
    try:
        data = file.read_bytes()
    except OSError:
        return {}
    start = data.find(_CACHE_MAGIC)
    if start == -1 or len(data) < start + 48:
        return {}
    (count,) = struct.unpack_from("<I", data, start + 20)
    found: dict[str, list[str]] = {}
    for number in range(min(count, _MOST_CACHED, (len(data) - start - 48) // 24)):
        _, key, value = struct.unpack_from("<III", data, start + 48 + number * 24)
        found.setdefault(_string(data, start + key), []).append(_string(data, start + value))
    return found


def _string(data: bytes, at: int) -> str:
    return data[at : data.find(b"\0", at, at + 4096)].decode(errors="replace")


def system_libraries(file: Path = Path("/etc/ld.so.cache")) -> Callable[[str], Sequence[str]]:
    """What Linker wants as `system`, for this machine."""
    cache = read_loader_cache(file)

    def look_up(name: str) -> Sequence[str]:
        return [*cache.get(name, ()), *(join(folder, name) for folder in _DEFAULT_FOLDERS)]

    return look_up
