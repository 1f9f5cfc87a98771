"""Every interpreter that is here, each a lane of the tests: of a version manager, the distribution's own, and ours."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from harness.capture.files.formats.elf import Elf
from harness.diagnose.plumbing import is_interpreter
from tests import interpreters

VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13")
DISTRIBUTION = "-distribution"  # how the lane of its own interpreter is marked
TODAY = [version for version in interpreters.USUAL if interpreters.locate(version).exists()]  # by `make interpreters`


def find_interpreters() -> dict[str, str]:
    """Every version that is present: on PATH, under a version manager, the distribution's own, and always ours."""
    found = {}
    roots = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"]
    for version in VERSIONS:
        managed = [path for root in roots for path in sorted(root.glob(f"{version}.*/bin/python{version}"))]
        if path := next(map(str, managed), None) or shutil.which(f"python{version}"):
            found[version] = path
    found |= {version: str(interpreters.locate(version)) for version in TODAY}
    found[f"{sys.version_info[0]}.{sys.version_info[1]}"] = sys.executable
    return found | find_distributions(found)


def find_distributions(others: dict[str, str]) -> dict[str, str]:
    """The distribution's own interpreter, static and stripped on Debian, where none of the others is that one."""
    python = Path("/usr/bin/python3").resolve()
    version = python.name.removeprefix("python")
    if version not in VERSIONS or python in {Path(other).resolve() for other in others.values()}:
        return {}
    return {f"{version}{DISTRIBUTION}": str(python)}


def version_of(lane: str) -> str:
    return lane.removesuffix(DISTRIBUTION)


def is_further(lane: str) -> bool:
    """One more interpreter of many: it runs what depends on how it is laid out in memory."""
    return not is_ours(lane) and (lane in TODAY or lane.endswith(DISTRIBUTION))


INTERPRETERS = find_interpreters()
_PRESENT = [version for version in VERSIONS if version in INTERPRETERS]
OLDEST_AND_NEWEST = {*_PRESENT[:1], *_PRESENT[-1:]}


def is_ours(version: str) -> bool:
    return INTERPRETERS[version] == sys.executable


@functools.cache
def has_symbols(python: str) -> bool:
    """Whether the interpreter's own functions have names; a distribution takes those out that it does not export."""
    source = (
        "import sys; print(*{line.split(maxsplit=5)[-1].strip() for line in open('/proc/self/maps') if '/' in line})"
    )
    paths = subprocess.check_output([python, "-I", "-c", source], text=True).split()
    images = sorted(filter(is_interpreter, paths), key=lambda path: "libpython" not in path)
    with Elf(Path(images[0])) as elf:
        return bool(elf.section(".symtab"))
