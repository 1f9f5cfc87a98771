"""The py-spy that is sent to a host without one: a static program, from the wheel for that host's processor.

The installed one where the processor is the same; else fetched by pip, once, into the user's cache.
"""

from __future__ import annotations

import hashlib
import os
import platform
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

from harness.capture.machine.trust import check_file, find_tool, read_safe_path
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
# Of the programs in the wheels of releases that were there when this was written.
_SHA256 = {
    ("0.4.3", "x86_64"): "a41205d4925beafd108e1ace85e66c0a1a7adbfcbebcd4441f07848b608886c0",
    ("0.4.3", "aarch64"): "ad6e22882e8dcaced4f0a76fef10d372645cc7b94c48a289ebe1bedb754774ed",
    ("0.4.3", "armv7l"): "6df2771577c6c0fe5399ff07be3560b84b95b465c612abffc2da304e260b0626",
    ("0.4.3", "i686"): "f56cfc20cbb6f147a967b323ab9c6b334327fca4a984fd23a85168d1d29a35ac",
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
    data = _read_program(machine)
    return Tool(zlib.compress(data, 1), hashlib.sha256(data).hexdigest())


def _read_program(machine: str) -> bytes:
    """What is sent is what was checked: it is read once."""
    ours = find_tool("py-spy").path
    if ours and machine == platform.machine() and sys.platform == "linux" and _is_program(Path(ours)):
        return Path(ours).read_bytes()
    if machine not in _TAGS:
        hint = "pip install py-spy, over there"
        raise HarnessError(f"There is no py-spy for the processor {machine}.", hint=hint)
    if (data := read_kept(machine)) is None:
        _fetch(machine)
        data = read_kept(machine)
    if data is None:
        raise HarnessError(f"The py-spy in {_cache()} is not the one that was published.", hint=f"ls -l {_cache()}")
    return data


def read_kept(machine: str) -> bytes | None:
    """From the cache, by its hash, each time: the published one; of a version we do not know, the one in its name."""
    known = _SHA256.get((_version(), machine))
    for path in sorted(_cache().glob(f"py-spy-{_version()}-{machine}-*")):
        wanted = known or path.name.rpartition("-")[2]
        try:
            data = path.read_bytes()
        except OSError:
            continue
        if check_file(path) is None and hashlib.sha256(data).hexdigest() == wanted:
            return data
    return None


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _cache() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("harness")) / "tools"


def _version() -> str:
    return metadata.version("py-spy")


def _fetch(machine: str) -> None:
    """Whole or not at all. pip checks the wheel against the index; its hash is in the name it is kept by."""
    cache = _cache()
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".fetch-") as folder:
        command = [sys.executable, "-I", "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
        command += ["--only-binary=:all:", "--platform", _TAGS[machine], "--dest", folder, f"py-spy=={_version()}"]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_DEADLINE_S,
                check=False,
                cwd="/",
                env={**os.environ, "PATH": read_safe_path()},  # pip asks rustc and others for their versions
            )
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
        part.write_bytes(data := _unpack(wheels[0]))
        part.chmod(0o600)
        kept = cache / f"py-spy-{_version()}-{machine}-{hashlib.sha256(data).hexdigest()}"
        os.replace(part, kept)  # noqa: PTH105 (as in evidence/case.py, but over file systems it must fail)


def _unpack(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/scripts/py-spy")]
        return archive.read(name)
