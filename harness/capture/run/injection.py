"""Whether the crash link can be put into a program, judged from its file; and the variables that put it there.

A static, setuid or sanitizer-built program is left alone: nothing of ours would load, or it would break. That is a
gap in the report, not an error. Says nothing about the program's children, which get the same variables. On macOS
nothing has to be in the program (native/mach.c), and every program can have the link.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
import sys
from pathlib import Path

from harness.capture.files.formats.elf import Elf
from harness.capture.machine.payload import payload
from harness.native import LIBRARY

_VARIABLES = {"darwin": "DYLD_INSERT_LIBRARIES"}
_SANITIZERS = ("libasan", "libtsan", "libmsan", "libclang_rt.asan", "libclang_rt.tsan")


def why_not(path: str, platform: str = sys.platform) -> str | None:
    """Why nothing can be injected into the program at `path`; null when it can."""
    return None if platform == "darwin" else _why_not_elf(path)


def _why_not_elf(path: str) -> str | None:
    program = resolve_program(path)
    try:
        mode = program.stat().st_mode
        if mode & (stat.S_ISUID | stat.S_ISGID) and os.getuid() != 0:
            return f"{program} is setuid: the loader ignores LD_PRELOAD"
        with Elf(program) as elf:
            needed = elf.needed() if elf.is_dynamic else None
    except (OSError, struct.error, ValueError) as error:
        return f"{program} could not be read as an ELF program: {error}"
    if needed is None:
        return f"{program} is statically linked: no library can be put into it"
    sanitizer = next((name for name in needed if name.startswith(_SANITIZERS)), None)
    return f"{program} is built with a sanitizer ({sanitizer}), which must come first" if sanitizer else None


def resolve_program(path: str) -> Path:
    """The ELF file that will run: a script's interpreter, and behind `env` the program it finds."""
    program = Path(path)
    for _ in range(4):
        try:
            with program.open("rb") as file:
                first = file.readline(256)
        except OSError:  # not there or not readable: the attempt to run it will tell
            break
        words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
        if not words:
            break
        if Path(words[0]).name == "env" and len(words) > 1:
            words = [shutil.which(words[-1]) or words[0]]
        program = Path(words[0])
    return program


def link_variables(link: Path, inject: str, platform: str = sys.platform) -> dict[str, str]:
    """On macOS both ways, whatever was asked for: a program of the system (/bin/bash) drops DYLD_* variables."""
    if platform == "darwin":
        return preload_variables(link, platform) | shim_variables(link)
    return shim_variables(link) if inject == "shim" else preload_variables(link, platform)


def preload_variables(link: Path, platform: str = sys.platform) -> dict[str, str]:
    """LD_PRELOAD with our library last, after the user's own, and where to report. Only Linux splits at spaces too."""
    name = _VARIABLES.get(platform, "LD_PRELOAD")
    given = os.environ.get(name, "")
    words = given.split(":") if platform == "darwin" else given.replace(":", " ").split()
    preloaded = [*(word for word in words if word and word != str(LIBRARY)), str(LIBRARY)]
    return {name: ":".join(preloaded), "HARNESS_LINK": str(link)}


def shim_variables(link: Path) -> dict[str, str]:
    """PYTHONPATH with our sitecustomize first; it finds the library beside the link."""
    (link.parent / LIBRARY.name).symlink_to(LIBRARY)
    shim = payload("probes/shim")
    existing = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(shim), *([existing] if existing else [])]), "HARNESS_LINK": str(link)}
