"""Compiled code that does not fit where it is loaded: a library that is missing, too old or for another machine.

The rows of `abi-mismatch`. The loader's words name the reason and, mostly, the file; each reason has its own remedy.
All patterns are anchored: a sentence that quotes the loader is not the loader.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from harness.diagnose.death.matching import Finding, marker
from harness.diagnose.death.reading import Reading
from harness.documents.verdict import Ground, Remedy

# What dlopen said, as CPython and ctypes raise it. The file's name may hold anything but a colon and a line's end.
_RAISED = r"^(?:ImportError|OSError): "
_FILE = r"[^:\n]{1,300}"
_AGAIN = "harness run -- {command}"

_MISSING = Remedy(
    do="Install the library that is missing, or put its directory on the loader's path (LD_LIBRARY_PATH, conda's lib, "
    "module load): LD_DEBUG=libs {command} shows who needs it and where it was sought.",
    safe=True,
    why="no file of that name, for this processor, is where the loader looks",
    verify=_AGAIN,
)
_STATIC_TLS = Remedy(
    do="Load that library first (import its module before the others, or LD_PRELOAD=<the library>), or give the loader "
    "more room: GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384 {command}",
    safe=True,
    why="it keeps its thread-local memory in the block that is laid out at the start, which has no room left",
    verify=_AGAIN,
)
_TOO_OLD = Remedy(
    do="Use a newer copy of the library that is named first, or a build of the module for this system: "
    "readelf -V <the library> lists the versions it has. In conda, libstdcxx-ng is newer than the system's libstdc++.",
    safe=True,
    why="the module was built against a newer version of that library than the one that is loaded",
    verify=_AGAIN,
)
_DRIVER = Remedy(
    do="Update the NVIDIA driver of the host, or install a build for the CUDA version that it supports (nvidia-smi "
    "shows it in its first lines).",
    safe=True,
    why="a CUDA runtime needs a driver at least as new as itself; a container uses the host's driver",
    verify=_AGAIN,
)
_ARCHITECTURE = Remedy(
    do="Install the module for the processor that this Python runs on: python -c 'import platform; "
    "print(platform.machine())' against `file <the library>`.",
    safe=True,
    why="the file holds code for another processor, or for another word size",
    verify=_AGAIN,
)

MARKERS = (
    marker(
        rf"{_RAISED}(?P<image>{_FILE}): undefined symbol: \S+.*",
        "exception",
        "OSError: ./x.so: undefined symbol: zoo_missing",
    ),
    marker(
        r"^(?:ValueError|RuntimeError|ImportError): numpy\.(?:dtype|ndarray|ufunc) size changed, may indicate .*",
        "exception",
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility.",
    ),
    marker(
        r"^(?:RuntimeError|ImportError): module (?:was )?compiled against (?:NumPy C-API|API|ABI) version.*",
        "exception",
        "RuntimeError: module was compiled against NumPy C-API version 0x10 (NumPy 1.23) but the running NumPy has 0xe",
    ),
    marker(
        rf"{_RAISED}dlopen\(.*\): Symbol not found: \S+",
        "exception",
        "ImportError: dlopen(x.so, 0x0002): Symbol not found: __ZN3c105ErrorC1E",
    ),
    marker(
        rf"{_RAISED}{_FILE}: version `[^'\n]+' not found \(required by (?P<image>[^)\n]+)\)",
        "exception",
        "ImportError: /usr/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.30' not found "
        "(required by /env/lib/python3.11/site-packages/x.so)",
        _TOO_OLD,
    ),
    marker(
        rf"{_RAISED}{_FILE}: cannot open shared object file: No such file or directory",
        "exception",
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        _MISSING,
    ),
    marker(
        rf"{_RAISED}dlopen\(.*\): Library not loaded: \S+",
        "exception",
        "ImportError: dlopen(/env/x.so, 0x0002): Library not loaded: @rpath/libomp.dylib",
        _MISSING,
    ),
    marker(
        rf"{_RAISED}(?P<image>{_FILE}): cannot allocate memory in static TLS block",
        "exception",
        "ImportError: /lib/aarch64-linux-gnu/libgomp.so.1: cannot allocate memory in static TLS block",
        _STATIC_TLS,
    ),
    marker(
        rf"{_RAISED}(?P<image>{_FILE}): wrong ELF class: ELFCLASS\d+",
        "exception",
        "OSError: ./x.so: wrong ELF class: ELFCLASS32",
        _ARCHITECTURE,
    ),
    marker(
        rf"{_RAISED}dlopen\(.*\): .*incompatible architecture \(have '[^'\n]*', need '[^'\n]*'\)",
        "exception",
        "ImportError: dlopen(/env/x.so, 0x0002): tried: '/env/x.so' (mach-o file, but is an incompatible architecture "
        "(have 'x86_64', need 'arm64'))",
        _ARCHITECTURE,
    ),
    marker(
        r"^RuntimeError: The NVIDIA driver on your system is too old \(found version \d+\)",
        "exception",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update",
        _DRIVER,
    ),
    marker(
        r"^[\w.]{1,100}Error: (?:CUDA error: |cudaErrorInsufficientDriver: |Unexpected error from cuda\w+\(\)\."
        r"[^'\"`;\n]* Error \d+: )?CUDA driver version is insufficient for CUDA runtime version",
        "exception",
        "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        _DRIVER,
    ),
)

_PROGRAM = r"^(?P<program>[^:\n]{1,300}): "
_NOT_STARTED = 127  # only the loader and shells leave so
# What the loader prints when it ends a program itself, and the status it then leaves with (elf/dl-error.c, rtld.c).
_LOADER = (
    (re.compile(rf"{_PROGRAM}error while loading shared libraries: (?P<said>.+)$", re.MULTILINE), _NOT_STARTED),
    (re.compile(rf"{_PROGRAM}symbol lookup error: (?P<said>(?P<image>{_FILE}): .+)$", re.MULTILINE), _NOT_STARTED),
    (
        re.compile(
            rf"{_PROGRAM}(?P<said>{_FILE}: version `[^'\n]+' not found \(required by (?P<image>[^)\n]+)\))$",
            re.MULTILINE,
        ),
        1,
    ),
)
_REMEDIES = (
    ("cannot open shared object file", _MISSING),
    ("static TLS block", _STATIC_TLS),
    ("' not found (required by", _TOO_OLD),
    ("wrong ELF class", _ARCHITECTURE),
)


def find_refused_load(reading: Reading) -> Finding | None:
    """The loader ended the program: its words, the program's name in front of them and its status go together.

    A program that tells how it leaves was loaded. One that replaced another, or that a shell started, may end before
    its name was seen: then its last words and 127 are all there is.
    """
    if reading.exit is not None:
        return None
    for pattern, status in _LOADER:
        seen = reading.last_words(pattern) if reading.exit_code == status else None
        if seen is None:
            continue
        found, place = seen
        named = reading.is_log or _names_culprit(found["program"], reading)
        if not named and (status != _NOT_STARTED or " " in found["program"]):  # which may be a sentence that quotes it
            continue
        certain = named and not reading.is_log and reading.is_printed_by_culprit(place)
        against = () if named else (f"a process called {found['program']} was not seen",)
        remedies = tuple(remedy for words, remedy in _REMEDIES if words in found["said"])
        groups = {"image": found["image"]} if found.groupdict().get("image") else {}
        ground = Ground(f"the loader printed: {found[0]}", str(place))
        return Finding("established" if certain else "supported", found["said"], (ground,), groups, against, remedies)
    return None


def _names_culprit(program: str, reading: Reading) -> bool:
    """The loader prints argv[0].

    One that became another program and ended at once still has the words that it was started with, but not the name; or
    nothing is known of it but that the kernel told of that.
    """
    culprit = next((one for one in reading.evidence.processes if one.pid == reading.culprit.pid), None)
    if culprit is None:
        return False
    became_another = bool(culprit.executable) and not PurePath(culprit.executable or "").name.startswith(culprit.name)
    own = 1 if culprit.pid == reading.evidence.pid else 0
    return culprit.argv[:1] == (program,) or became_another or (not culprit.argv and culprit.execs > own)


_NUMPY_IMPORT = re.compile(
    r"ImportError: numpy\.(?:_?core\.)?\w*multiarray\w* failed to import(?: \(auto-generated because .*)?$"
    r"|AttributeError: _ARRAY_API not found$",
    re.MULTILINE,
)
_NUMPY_BANNER = re.compile(
    r"A module that was compiled using NumPy (?P<built>\S+) cannot be run in\s+NumPy (?P<found>\S+)"
)
_PACKAGE = re.compile(r"/(?:site|dist)-packages/(?P<package>[^/.]+)")


def find_numpy_mismatch(reading: Reading) -> Finding | None:
    """NumPy's banner alone is a warning; with the failed import as the uncaught exception it is the cause."""
    if reading.final is None or not any(_NUMPY_IMPORT.match(item.text) for item in reading.exceptions):
        return None
    packages = (_PACKAGE.search(frame.file) for frame in reading.final.frames)
    module = next((found["package"] for found in packages if found), "a module")
    grounds = [Ground(f"uncaught {reading.final.sentence}", str(reading.final.end))]
    detail = f"{module} failed to import NumPy's C interface"
    if seen := reading.said(_NUMPY_BANNER):
        banner, place = seen
        detail = f"{module} was compiled for NumPy {banner['built']} and found NumPy {banner['found']}"
        grounds.append(Ground(" ".join(banner[0].split()), str(place)))
    return Finding("established" if reading.is_proven else "supported", detail, tuple(grounds), {})


def find_misfit(reading: Reading) -> Finding | None:
    return find_numpy_mismatch(reading) or find_refused_load(reading)
