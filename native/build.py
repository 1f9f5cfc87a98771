"""Build hook of the wheel: compiles native/*.c into the one library that the package carries.

It links no Python, reads nothing of what the C does, and has no part in an sdist. Order of events:
`dependencies` asks for the ziglang wheel if this machine has no compiler; `initialize` compiles, checks the
glibc baseline, turns the header into cffi's interface and lists the payloads; then the backend packs. A
standard wheel takes the library from a scratch directory, so that building one never replaces the library
under a running process; an editable install gets it by rename into harness/ and uses the payloads where
they are.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "libharness.dylib" if sys.platform == "darwin" else "libharness.so"
INTERFACE = "_abi.py"
FLAGS = ["-std=gnu11", "-O2", "-g", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"]
REBUILD = "python -m pip install ."
PAYLOADS = ("probes", "reproducers")
# The glibc of manylinux2014 (PEP 599), so that the library loads wherever such wheels do.
GLIBC_BASELINE = (2, 17)
DYNSYM, VERNEED, VERSYM = 11, 0x6FFFFFFE, 0x6FFFFFFF  # section types, <elf.h>


class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def dependencies(self) -> list[str]:
        return ["ziglang>=0.13"] if self.target_name == "wheel" and not find_compiler() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        editable = version == "editable"
        # Inside harness/ for an editable install, because a rename stays within one file system.
        where = root / "harness" if editable else None
        self.scratch = tempfile.TemporaryDirectory(prefix=".build-", dir=where)
        library = Path(self.scratch.name) / LIBRARY
        compile_library(root, library)
        check_baseline(library)
        interface = Path(self.scratch.name) / INTERFACE
        generate_interface(root / "native" / "harness.h", interface)
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
        if editable:
            for built in (library, interface):
                built.replace(root / "harness" / built.name)
            return
        for built in (library, interface):
            build_data["force_include"][str(built)] = f"harness/{built.name}"
        for name in PAYLOADS:
            for script in sorted((root / name).rglob("*.py")):
                build_data["force_include"][str(script)] = f"harness/payloads/{script.relative_to(root)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.target_name == "wheel":
            self.scratch.cleanup()


def find_compiler() -> list[str]:
    """Return the command of this machine's C compiler, or an empty list where ziglang has to do.

    CC=ziglang asks for it by name: inside an isolated build no other spelling would find the wheel.
    """
    if chosen := shlex.split(os.environ.get("CC", "")):
        return [] if chosen == ["ziglang"] else chosen
    return next(([path] for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), [])


def find_zig() -> list[str]:
    """Return the command of the ziglang wheel's C compiler, set to the baseline."""
    if importlib.util.find_spec("ziglang") is None:
        stop("no C compiler was found, and no ziglang wheel in its place", "python -m pip install ziglang")
    command = [sys.executable, "-m", "ziglang", "cc"]
    if sys.platform != "linux":
        return command
    libc = "gnu.{}.{}".format(*GLIBC_BASELINE) if platform.libc_ver()[0] == "glibc" else "musl"
    return [*command, "-target", f"{platform.machine()}-linux-{libc}"]


def macos_flags() -> list[str]:
    """Return the flags that make the library match the wheel's tag, e.g. macosx-11.0-universal2."""
    if sys.platform != "darwin":
        return []
    _, minimum, machine = sysconfig.get_platform().split("-")
    machines = ["arm64", "x86_64"] if machine == "universal2" else [machine]
    return [f"-mmacosx-version-min={minimum}", *(word for name in machines for word in ("-arch", name))]


def link_flags(own: bool) -> list[str]:
    """Return how to link: nothing is bound lazily, because a signal handler must not enter the dynamic linker.

    dlsym lived in libdl until glibc 2.34; the library asks for libdl so that it loads on older systems as well. Of
    macOS's linkers Apple's takes the word (newer ones may call it deprecated, they bind at load anyway), zig's not.
    """
    if sys.platform == "darwin":
        return ["-Wl,-bind_at_load"] if own else []
    if sys.platform != "linux":
        return []
    if not own:
        return ["-Wl,-z,now", "-ldl"]
    return ["-Wl,-z,now", *(["-Wl,--no-as-needed", "-l:libdl.so.2"] if platform.libc_ver()[0] == "glibc" else [])]


def compile_library(root: Path, library: Path) -> None:
    own = find_compiler()
    compiler = own or find_zig()
    instead = f"CC={'ziglang' if own else 'gcc'} {REBUILD}"
    sources = sorted(path.relative_to(root) for path in (root / "native").glob("*.c"))
    try:
        # The compiler's own words go to our stderr, above the one sentence.
        command = [*compiler, *FLAGS, *macos_flags(), "-o", str(library), *map(str, sources), *link_flags(bool(own))]
        status = subprocess.run(command, cwd=root, check=False).returncode
    except OSError as error:
        stop(f"the C compiler '{shlex.join(compiler)}' cannot be started ({error.strerror})", instead)
    if status:
        stop(f"'{shlex.join(compiler)}' ended with status {status}, its output is above", instead)


def generate_interface(header: Path, interface: Path) -> None:
    """Write what cffi needs to call the library, so that no C is parsed when harness starts (0.1 s)."""
    import cffi  # after the compiler: who lacks both should hear of the compiler first

    text = header.read_text().replace("HARNESS_API ", "")
    plain = (line for line in text.splitlines() if not line.startswith("#") or line.startswith("#define HARNESS_ABI"))
    ffi = cffi.FFI()
    ffi.set_source("harness._abi", None)
    ffi.cdef("\n".join(plain))
    ffi.emit_python_code(str(interface))


def check_baseline(library: Path) -> None:
    """Stop if the library would refuse to load on a system with the baseline glibc."""
    if sys.platform != "linux":
        return
    needed = read_needed_versions(library)
    if needed is None:
        print(f"native/build.py: no glibc baseline is known for {platform.machine()}", file=sys.stderr)
        return
    newer = [f"{version} ({', '.join(names)})" for version, names in needed.items() if is_newer(version)]
    if newer:
        baseline = "{}.{}".format(*GLIBC_BASELINE)
        stop(f"{LIBRARY} needs {', '.join(newer)}, newer than glibc {baseline}", f"CC=ziglang {REBUILD}")


def is_newer(version: str) -> bool:
    """Tell whether a symbol version is above the baseline; GLIBC_PRIVATE and GLIBC_ABI_* always are."""
    namespace, _, number = version.partition("_")
    if namespace != "GLIBC":
        return False
    parts = number.split(".")
    return not all(part.isdigit() for part in parts) or tuple(map(int, parts)) > GLIBC_BASELINE


def read_needed_versions(library: Path) -> dict[str, list[str]] | None:
    """Return each symbol version the library asks for, with its symbols; None: no baseline is known.

    ELF-64 Object File Format 1.5; Linux Standard Base 5.0 Core, "Symbol Versioning". A version may come
    without a symbol (GLIBC_ABI_DT_RELR), so versions are read from their own table first.
    """
    data = library.read_bytes()
    (machine,) = struct.unpack_from("<H", data, 18)
    if data[:6] != b"\x7fELF\x02\x01" or machine not in (62, 183):  # EM_X86_64, EM_AARCH64
        return None
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    # A section header is: name, type, flags, address, offset, bytes, link, info, alignment, entry bytes.
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + size * n) for n in range(count)]
    sections = {header[1]: header for header in headers}
    if VERNEED not in sections:
        return {}
    _, _, _, _, symbols, symbols_bytes, link, *_ = sections[DYNSYM]
    strings = headers[link][4]

    def text(offset: int) -> str:
        return data[strings + offset : data.index(0, strings + offset)].decode()

    versions = {index: text(name) for index, name in walk_verneed(data, sections[VERNEED][4])}
    # One version may be asked of several libraries (libc.so.6, libdl.so.2), each time under another index.
    needed: dict[str, list[str]] = {version: [] for version in versions.values()}
    for n in range(symbols_bytes // 24):
        (name,) = struct.unpack_from("<I", data, symbols + 24 * n)
        (index,) = struct.unpack_from("<H", data, sections[VERSYM][4] + 2 * n)
        if index in versions:
            needed[versions[index]].append(text(name))
    return needed


def walk_verneed(data: bytes, offset: int) -> Iterator[tuple[int, int]]:
    """Yield (version index, offset of its name): a list of libraries, each with a list of versions."""
    while True:
        _, count, _, first, next_library = struct.unpack_from("<HHIII", data, offset)
        entry = offset + first
        for _ in range(count):
            _, _, index, name, next_entry = struct.unpack_from("<IHHII", data, entry)
            yield index, name
            entry += next_entry
        if not next_library:
            return
        offset += next_library


def stop(why: str, next_command: str) -> NoReturn:
    raise SystemExit(f"native/build.py: {why}; next: {next_command}")
