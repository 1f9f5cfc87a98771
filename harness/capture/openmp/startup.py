"""Who sets the variables that steer OpenMP and BLAS before a program starts: the environment, and start-up files.

Reads text, line by line, and runs none of it. What a program sets itself is not looked for here.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from harness.capture.openmp.variables import steers
from harness.evidence.openmp import Setting

_HIDES = "KMP_DUPLICATE_LIB_OK"
_NAME = "(?:OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|GOTO|VECLIB)_[A-Z0-9_]+"
# os.environ["X"] = "1" · environ.setdefault("X", "1") · putenv · X=1 · "X": "1" · setenv X 1 · set -gx X 1
_SET = re.compile(
    rf"""(?:\b(?:setenv|set\s+-\w+)\s+(?P<command>{_NAME})\s+"""
    rf"""|(?<!get\(["'])(?<!getenv\(["'])(?<!\w)(?P<name>{_NAME})["']?\s*\]?\s*(?:=(?!=)|,|:)\s*)"""
    r"""["']?(?P<value>[^"'\s;#)},]*)"""
)
_SHELL_FILES = (
    ".profile",
    ".bash_profile",
    ".bashrc",
    ".zshenv",
    ".zprofile",
    ".zshrc",
    ".config/fish/config.fish",
)
_LARGEST_BYTES = 1 << 20


def read_settings(
    environment: Mapping[str, str], sites: Iterable[str], prefix: str, stdlib: str, home: Path | None
) -> tuple[Setting, ...]:
    """A user's shell files are searched for the variable that hides the fault only."""
    found = [Setting(name, value, "environment") for name, value in sorted(environment.items()) if steers(name)]
    for file in _list_files([*map(Path, sites), Path(stdlib)], Path(prefix)):
        found += _read_file(file)
    for file in (home / name for name in _SHELL_FILES) if home is not None else ():
        found += [setting for setting in _read_file(file) if setting.name == _HIDES]
    return tuple(found)


def _list_files(folders: Iterable[Path], prefix: Path) -> Iterator[Path]:
    for folder in dict.fromkeys(folders):
        yield from (folder / "sitecustomize.py", folder / "usercustomize.py")
        with contextlib.suppress(OSError):
            yield from sorted(Path(folder, name) for name in os.listdir(folder) if name.endswith(".pth"))  # noqa: PTH208
    yield prefix / "bin" / "activate"
    for pattern in ("etc/conda/activate.d/*", "etc/conda/env_vars.d/*", "conda-meta/state"):
        yield from sorted(prefix.glob(pattern))
    yield Path("/etc/environment")


def _read_file(file: Path) -> list[Setting]:
    try:
        if file.stat().st_size > _LARGEST_BYTES:
            return []
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [
        Setting(match["command"] or match["name"], match["value"], f"{file}:{number}")
        for number, line in enumerate(lines, 1)
        if not line.lstrip().startswith("#")
        for match in _SET.finditer(line)
    ]
