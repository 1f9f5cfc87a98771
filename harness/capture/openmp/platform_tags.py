"""For which platform and Python wheels are meant: the tags in their names, and the older tags that go with each.

Asks nobody: the rules are those of PEP 425 and PEP 600, as packaging.tags has them.
"""

from __future__ import annotations

import platform as host
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from harness.errors import UsageError

_OLDEST_GLIBC = {"x86_64": 5, "i686": 5}  # 2.5; every other machine begins with 2.17
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_SYSTEMS = {
    "mac": ("Darwin", "posix", "darwin"),
    "win": ("Windows", "nt", "win32"),
    "": ("Linux", "posix", "linux"),
}


class Target(NamedTuple):
    """`platform` as in the name of a wheel, `python` as 3.13."""

    platform: str
    python: str


def check_target(platform: str | None, python: str | None) -> Target:
    """Null: this machine, this Python."""
    platform = platform or _own_platform()
    if not re.fullmatch(r"(macosx|manylinux|musllinux|linux|win)[a-z0-9_]*", platform):
        raise UsageError(f"not the tag of a platform: {platform}", hint="--platform macosx_14_0_arm64")
    match = re.fullmatch(r"3\.?(\d+)(\.\d+)?", python or f"3.{sys.version_info[1]}")
    if match is None:
        raise UsageError(f"not a version of Python 3: {python}", hint="--python-version 3.13")
    return Target(platform, f"3.{match[1]}")


def list_tags(platform: str) -> list[str]:
    """The platform and the older ones whose wheels it takes, newest first; PEP 425, 600, and packaging.tags."""
    if match := re.fullmatch(r"macosx_(\d+)_(\d+)_(\w+)", platform):
        return list(_mac_tags(int(match[1]), int(match[2]), match[3]))
    if match := re.fullmatch(r"manylinux_2_(\d+)_(\w+)", platform):
        return list(_glibc_tags(int(match[1]), match[2]))
    if match := re.fullmatch(r"musllinux_1_(\d+)_(\w+)", platform):
        return [f"musllinux_1_{minor}_{match[2]}" for minor in range(int(match[1]), -1, -1)]
    return [platform]


def _mac_tags(major: int, minor: int, machine: str) -> Iterator[str]:
    """From 11 on the minor version is always 0. arm64 began with 11; before that only universal files can hold it."""
    releases = [(number, 0) for number in range(major, 10, -1)]
    releases += [(10, number) for number in range(16 if major > 10 else minor, 3, -1)]
    for release in releases:
        for kind in (machine, "universal2"):
            if kind != "arm64" or release >= (11, 0):
                yield f"macosx_{release[0]}_{release[1]}_{kind}"


def _glibc_tags(newest: int, machine: str) -> Iterator[str]:
    for minor in range(newest, _OLDEST_GLIBC.get(machine, 17) - 1, -1):
        yield f"manylinux_2_{minor}_{machine}"
        if minor in _LEGACY:
            yield f"{_LEGACY[minor]}_{machine}"
    yield f"linux_{machine}"


def _own_platform() -> str:
    machine = host.machine()
    if sys.platform == "darwin":
        return f"macosx_{host.mac_ver()[0].split('.')[0]}_0_{machine}"
    if sys.platform == "win32":
        return f"win_{machine.lower()}"
    library, version = host.libc_ver()
    return f"manylinux_{version.replace('.', '_')}_{machine}" if library == "glibc" else f"musllinux_1_2_{machine}"


def marker_environment(target: Target) -> dict[str, str]:
    """https://packaging.python.org/en/latest/specifications/dependency-specifiers/#environment-markers."""
    kind = re.match(r"mac|win|", target.platform)
    system, os_name, name = _SYSTEMS[kind[0] if kind else ""]
    machine = re.search(r"(x86_64|amd64|aarch64|arm64|i686)$", target.platform)
    return {
        "os_name": os_name,
        "sys_platform": name,
        "platform_system": system,
        "platform_machine": (machine[1] if machine else "").replace("amd64", "AMD64"),
        "python_version": target.python,
        "python_full_version": f"{target.python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
