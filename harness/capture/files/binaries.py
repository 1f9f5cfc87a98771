"""What one native file (ELF, Mach-O, PE) says about OpenMP and BLAS: which runtime it is or holds, and which it calls.

Judged by what is in the file, never by its name. Nothing is loaded; who is meant by a needed name is asked elsewhere
(environment.py for an installed file, wheels.py for one that is not).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from msgspec import Struct

from harness.capture.files.formats import macho
from harness.capture.files.formats.content import open_content
from harness.capture.files.formats.elf import Elf
from harness.capture.files.formats.macho import Import, MachO
from harness.capture.files.formats.pe import Pe
from harness.errors import Unreadable
from harness.evidence.openmp import Family

Format = Literal["elf", "macho", "pe"]

OPENMP_NAMES = (b"omp_", b"GOMP_", b"__kmpc_", b"kmp_", b"_vcomp_")
_THREAD_STARTS = (b"pthread_create", b"CreateThread", b"_beginthreadex", b"thrd_create")
_EVERY_NAME = (b"",)
# Exports of a library that is a runtime and nothing else: LLVM 14 and 16, Intel 2026, GCC 8 and 12, vcomp140.
_RUNTIMES_OWN = re.compile(
    r"(?i).*(kmp|omp_|gomp|ompt|ompc|ompx|goacc)|_?acc_|_You_must_link_with_|__atomic_|vcomp"
    r"|VERSION$|[A-Z]+_[0-9.]+$|_mh_dylib_header$|__dso_handle$|_init$|_fini$|_?_bss_start$|_edata$|_end$"
)

_BANNER = re.compile(rb"@\(#\) (LLVM|Intel\(R\)) OMP version: ([\w.]+)")
_LIBRARY_TYPE = re.compile(rb"@\(#\) (?:LLVM|Intel\(R\)) OMP library type: (\w+)")
_COMPILER = re.compile(rb"@\(#\) LLVM OMP build compiler: ([^\0\n]{1,40})")
_GNU_ABI = re.compile(rb"\0(GOMP_[0-9.]+)(?=\0)")
_GNU_COMPILER = re.compile(rb"GCC: \([^)\0]*\) ([0-9.]+)")
_GNU_PACKAGE = re.compile(rb"libgomp\.so\.1\.0\.0-([0-9]+\.[0-9.]+)-")  # Red Hat's name of the debug file
_FILE_VERSION = re.compile(rb"F\0i\0l\0e\0V\0e\0r\0s\0i\0o\0n\0\0\0(?:\0\0)?((?:[0-9.]\0){3,30})")
_OPENBLAS = re.compile(rb"OpenBLAS ([0-9]+\.[0-9]+[0-9.]*)((?: +(?:[A-Z][A-Z0-9_]+(?![a-z])))*)")
_OPENBLAS_WORDS = re.compile(
    rb"\b(?:NO_CBLAS|NO_LAPACKE?|USE64BITINT|DYNAMIC_ARCH|DYNAMIC_OLDER|NO_AFFINITY|USE_OPENMP|USE_TLS|SINGLE_THREADED)\b"
)
_MKL_VERSION = re.compile(rb"Math Kernel Library Version [0-9][^\0\n]{1,60}")


class RuntimeCopy(Struct, frozen=True):
    """An OpenMP runtime that this file is, or (`static`) that it has inside among other things."""

    family: Family
    version: str | None
    static: bool


class BlasCopy(Struct, frozen=True):
    kind: Literal["openblas", "mkl", "blis", "accelerate"]
    config: str | None
    threading: str | None = None


class Call(Struct, frozen=True):
    """OpenMP functions that the file calls and does not define.

    `library`: the needed name they are bound to, where the format says so (Mach-O, PE). `weak`: it does without them.
    """

    symbols: tuple[str, ...]
    library: str | None = None
    weak: bool = False


class Binary(Struct, frozen=True):
    """One image: a universal Mach-O file holds several. `defines`: the OpenMP functions that it offers to others."""

    format: Format
    machine: str
    name: str | None
    needed: tuple[str, ...]
    rpaths: tuple[str, ...]
    calls: tuple[Call, ...]
    defines: tuple[str, ...]
    runtime: RuntimeCopy | None
    blas: tuple[BlasCopy, ...]
    rpaths_pass_on: bool = False  # DT_RPATH and LC_RPATH hold for what the needed libraries need too, DT_RUNPATH not

    @property
    def matters(self) -> bool:
        return bool(self.calls or self.runtime or self.blas)


def is_native(head: bytes) -> bool:
    """By the first four bytes."""
    return head[:4] in (b"\x7fELF", *macho.MAGICS) or head[:2] == b"MZ"


def read_binaries(source: Path | bytes | BinaryIO) -> list[Binary]:
    """The images of one file, on disk or in memory. Unreadable: it is no native file that we can read; OSError."""
    with open_content(source) as content:
        head = content.read(0, min(4, content.size_bytes))
        if head == b"\x7fELF":
            return [read_elf(Elf(content))]
        if head in macho.MAGICS:
            return [_read_macho(image) for image in macho.images_of(content)]
        if head[:2] == b"MZ":
            return [_read_pe(Pe(content))]
    raise Unreadable("not a native file")


def read_elf(elf: Elf) -> Binary:
    """Also of an image in a process, which has no compiler's notes."""
    names = elf.symbols(OPENMP_NAMES)
    missing = [Import(symbol.name, None, symbol.weak) for symbol in names if not symbol.defined]
    defined = [symbol.name for symbol in names if symbol.defined]
    threads = any(word in elf.strings for word in _THREAD_STARTS)
    texts = _Texts(elf.constants() if threads or names else ())
    return Binary(
        format="elf",
        machine=elf.machine,
        name=elf.soname(),
        needed=tuple(elf.needed()),
        rpaths=tuple(elf.runpath() or elf.rpath()),
        calls=_group_calls(missing),
        defines=tuple(sorted(set(defined))),
        runtime=_find_runtime(
            texts,
            defined,
            lambda: [symbol.name for symbol in elf.symbols(_EVERY_NAME) if symbol.defined],
            lambda: _gnu_version(elf),
        ),
        blas=tuple(_find_blas(texts, missing, ())),
        rpaths_pass_on=not elf.runpath(),
    )


def _read_macho(image: MachO) -> Binary:
    missing = image.imports(OPENMP_NAMES)
    defined = image.exports(OPENMP_NAMES)
    threads = bool(missing or defined or image.imports(_THREAD_STARTS))
    texts = _Texts(image.constants() if threads else ())
    return Binary(
        format="macho",
        machine=image.machine,
        name=image.install_name,
        needed=tuple(image.needed),
        rpaths=tuple(image.rpaths),
        calls=_group_calls(missing),
        defines=tuple(sorted(set(defined))),
        runtime=_find_runtime(texts, defined, lambda: image.exports(_EVERY_NAME), lambda: None),
        blas=tuple(_find_blas(texts, missing, image.needed)),
        rpaths_pass_on=True,
    )


def _read_pe(image: Pe) -> Binary:
    missing = image.imports(OPENMP_NAMES)
    defined = image.exports(OPENMP_NAMES)
    texts = _Texts(image.constants())
    return Binary(
        format="pe",
        machine=image.machine,
        name=image.name,
        needed=tuple(image.needed),
        rpaths=(),
        calls=_group_calls(missing),
        defines=tuple(sorted(set(defined))),
        runtime=_find_runtime(texts, defined, lambda: image.exports(_EVERY_NAME), lambda: None),
        blas=tuple(_find_blas(texts, missing, ())),
    )


class _Texts:
    """The constants of one file, looked through piece by piece."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = list(pieces)

    def __contains__(self, text: bytes) -> bool:
        return any(text in piece for piece in self._pieces)

    def search(self, pattern: re.Pattern[bytes], near: bytes) -> re.Match[bytes] | None:
        """The first match that has `near` in it, found without the slow search through megabytes."""
        for piece in self._pieces:
            at = piece.find(near)
            while at != -1:
                if match := pattern.search(piece, max(0, at - 64), at + 512):
                    return match
                at = piece.find(near, at + len(near))
        return None


def _group_calls(missing: Iterable[Import]) -> tuple[Call, ...]:
    groups: dict[tuple[str | None, bool], set[str]] = {}
    for symbol in missing:
        groups.setdefault((symbol.library, symbol.weak), set()).add(symbol.name)
    return tuple(Call(tuple(sorted(names)), library, weak) for (library, weak), names in groups.items())


def _find_runtime(
    texts: _Texts, defined: list[str], every_export: Callable[[], list[str]], gnu_version: Callable[[], str | None]
) -> RuntimeCopy | None:
    found = _identify(texts, defined, gnu_version)
    if found is None:
        return None
    exports = every_export()
    own = sum(1 for name in exports if _RUNTIMES_OWN.match(name))
    # On macOS libomp also exports what it does not mean to: 33 of 1606 names (LLVM 16).
    return RuntimeCopy(*found, static=not defined or len(exports) - own > own // 40)


def _identify(
    texts: _Texts, defined: list[str], gnu_version: Callable[[], str | None]
) -> tuple[Family, str | None] | None:
    if banner := texts.search(_BANNER, b" OMP version: "):
        kind = texts.search(_LIBRARY_TYPE, b" OMP library type: ")
        if kind and kind[1] == b"stub":
            return None  # libiompstubs5: the functions with nothing behind them
        if banner[1] == b"LLVM":
            return "llvm", _llvm_version(texts, banner[2].decode())
        return "intel", banner[2].decode()
    if b"\nlibgomp: " in texts and b"Thread creation failed: %s" in texts:
        return "gnu", gnu_version()
    if "_vcomp_fork" in defined:
        version = texts.search(_FILE_VERSION, b"F\0i\0l\0e\0V\0e\0r\0s\0i\0o\0n\0")
        return "msvc", version[1].decode("utf-16-le") if version else None
    return None


def _llvm_version(texts: _Texts, version: str) -> str:
    """LLVM has called every release of its runtime 5.0.20140926; the compiler's version is that of the release."""
    compiler = texts.search(_COMPILER, b" OMP build compiler: ")
    return f"{version} ({compiler[1].decode(errors='replace')})" if compiler else version


def _gnu_version(elf: Elf) -> str | None:
    """libgomp does not say it: the newest version of its interface, and the compiler it was built with, its own."""
    names = _GNU_ABI.findall(elf.strings)
    newest = max(names, key=lambda name: [int(part) for part in re.findall(rb"[0-9]+", name)], default=None)
    compiler = _GNU_PACKAGE.match(elf.section(".gnu_debuglink")) or _GNU_COMPILER.search(elf.section(".comment"))
    words = [newest.decode()] if newest else []
    if compiler:
        words.append(f"(GCC {compiler[1].decode()})")
    return " ".join(words) or None


def _find_blas(texts: _Texts, missing: list[Import], needed: Iterable[str]) -> Iterator[BlasCopy]:
    calls = {symbol.name for symbol in missing}
    openmp = "openmp" if calls & {"GOMP_parallel", "__kmpc_fork_call", "_vcomp_fork"} else None
    if b"OpenBLAS : " in texts or b"OpenBLAS Warning" in texts:
        config = _openblas_config(texts)
        yield BlasCopy("openblas", config, openmp or ("pthreads" if b"blas_thread_init" in texts else None))
    if b"MKL FATAL ERROR: " in texts:
        version = texts.search(_MKL_VERSION, b"Math Kernel Library Version ")
        yield BlasCopy("mkl", version[0].decode(errors="replace") if version else None, openmp)
    if b"libblis: " in texts:
        yield BlasCopy("blis", None, openmp)
    if any("/Accelerate.framework/" in name or "/vecLib.framework/" in name for name in needed):
        yield BlasCopy("accelerate", None)


def _openblas_config(texts: _Texts) -> str | None:
    """Compilers may cut the string into pieces of 16 bytes: the words that are whole."""
    match = texts.search(_OPENBLAS, b"OpenBLAS 0") or texts.search(_OPENBLAS, b"OpenBLAS 1")
    if match is None:
        return None
    words = [b"OpenBLAS", match[1], *_OPENBLAS_WORDS.findall(match[2])]
    return b" ".join(words).decode()
