"""Which installed package a loaded file came with: wheel, conda, system package, or the interpreter itself.

Reads what the installers wrote down; runs nothing but `rpm`, and imports nothing of the target's. `root` is a variable
so that a made-up tree can be tested. Which of the packages is to blame is not asked here.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec.structs import replace

from harness.capture.files.images import PYTHON_FILE
from harness.capture.files.python_release import read_release
from harness.capture.machine.trust import find_program
from harness.evidence.crash import Image

_ROOT = Path("/")
_SITES = ("site-packages", "dist-packages")
_RPM_DEADLINE_S = 5
_QUOTED_LIBRARY = re.compile(rb'"([^"\\\n]*\.so[^"\\\n]*)"')
_INTERPRETER = re.compile(r"/bin/python[0-9.]*[a-z]*$|/libpython[0-9.]+[a-z]*\.so[0-9.]*$|/lib-dynload/[^/]+$")
_PATCH_VERSION = re.compile(r"(?<![0-9.])(3\.\d+\.\d+(?:(?:a|b|rc)\d+)?)(?![0-9])")
_MINOR_VERSION = re.compile(r"python(3\.\d+)")
_MERGED = re.compile(r"/usr(?=/(?:lib\w*|s?bin)/)")

Owner = Literal["wheel", "conda", "system", "interpreter", "unowned"]


class Owned(NamedTuple):
    owner: Owner
    distribution: str
    version: str | None


def find_owners(
    images: Iterable[Image], site_packages: Iterable[str], interpreter_prefix: str | None, root: Path = _ROOT
) -> tuple[Image, ...]:
    """The images with distribution, version and owner filled in where one is known.

    A deleted image keeps the name but not the version: what is on disk now is not what was loaded.
    """
    images = tuple(images)
    left = {image.path for image in images}
    owned: dict[str, Owned] = {}
    for search in (
        lambda paths: search_records(paths, site_packages),
        lambda paths: search_interpreter(paths, interpreter_prefix),
        search_conda,
        lambda paths: search_dpkg(paths, root),
        search_rpm,
    ):
        owned |= search(left - owned.keys())
    return tuple(_claim(image, owned.get(image.path)) for image in images)


def _claim(image: Image, owned: Owned | None) -> Image:
    if owned is None:
        return image
    version = None if image.deleted else owned.version
    return replace(image, owner=owned.owner, distribution=owned.distribution, version=version)


def find_site_packages(paths: Iterable[str]) -> list[str]:
    """Directories that may hold *.dist-info for these files: above them, and beside a lib/ that a wheel put data in."""
    folders = {ancestor for parent in {Path(path).parent for path in paths} for ancestor in (parent, *parent.parents)}
    found: set[str] = set()
    for folder in folders:
        if folder.name in ("lib", "lib64"):
            found |= {str(site) for site in folder.glob("python3*/site-packages")}
        if folder.name in _SITES or _has_dist_info(folder):
            found.add(str(folder))  # the second: pip install --target, or a store that an environment links to
    return sorted(found)


def _has_dist_info(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.endswith(".dist-info") for entry in entries)
    except OSError:
        return False


def search_records(paths: Iterable[str], site_packages: Iterable[str]) -> dict[str, Owned]:
    """By RECORD; https://packaging.python.org/en/latest/specifications/recording-installed-packages/."""
    owned: dict[str, Owned] = {}
    paths = set(paths)
    for site in site_packages:
        wanted = {os.path.relpath(path, site).encode(): path for path in paths}
        for record, lines in read_records(site):
            mine = [wanted[name] for name, _ in map(split_line, lines) if name in wanted]
            if mine:
                owned |= dict.fromkeys(mine, describe_distribution(record.parent))
    return owned


def read_records(site: str) -> Iterator[tuple[Path, list[bytes]]]:
    """Each RECORD's lines about shared libraries. A program in bin/ is not looked for: it is no library."""
    for record in sorted(Path(site).glob("*.dist-info/RECORD")):
        with contextlib.suppress(OSError):
            yield record, list(_library_lines(record.read_bytes()))


def _library_lines(record: bytes) -> Iterator[bytes]:
    """Twenty times faster than looking at every line; torch's RECORD has 14,000."""
    for suffix in (b".so", b".dylib"):
        at = record.find(suffix)
        while at != -1:
            end = record.find(b"\n", at)
            end = len(record) if end == -1 else end
            yield record[record.rfind(b"\n", 0, at) + 1 : end]
            at = record.find(suffix, end)


def split_line(line: bytes) -> tuple[bytes, str]:
    """(path relative to site-packages, hash); the path is quoted where it holds a comma."""
    text = line.decode("utf-8", "surrogateescape")
    try:
        name, digest = (*(next(csv.reader([text]), ()) if text.startswith('"') else text.split(",")), "", "")[:2]
    except csv.Error:
        return b"", ""  # a line that no installer has written
    if name.startswith(".."):
        name = os.path.normpath(name)
    return name.encode("utf-8", "surrogateescape"), digest


def describe_distribution(dist_info: Path) -> Owned:
    """The name as its author wrote it; the directory's name has it only with the dashes changed."""
    name, _, version = dist_info.name.removesuffix(".dist-info").partition("-")
    with contextlib.suppress(OSError):
        head = (dist_info / "METADATA").read_text(errors="replace").partition("\n\n")[0]
        fields = dict(line.split(": ", 1) for line in head.splitlines() if line.startswith(("Name: ", "Version: ")))
        name, version = fields.get("Name", name), fields.get("Version", version)
    return Owned("conda" if _installer(dist_info) == "conda" else "wheel", name, version)


def _installer(dist_info: Path) -> str | None:
    try:
        return (dist_info / "INSTALLER").read_text(errors="replace").strip()
    except OSError:
        return None


def check_modified(image: Image) -> bool | None:
    """Whether the file differs from its RECORD. Null: no RECORD has a hash for it, or it can no longer be read."""
    return None if image.deleted else differs_from(_recorded_hash(image.path), image.path)


def differs_from(recorded: str | None, path: str) -> bool | None:
    """Whether the file has another hash than RECORD says. Null: it says none, or the file cannot be read."""
    if not recorded:
        return None
    try:
        algorithm, _, expected = recorded.partition("=")
        with Path(path).open("rb") as file:
            actual = _hash(file.fileno(), algorithm)
    except (OSError, ValueError):
        return None
    return base64.urlsafe_b64encode(actual).rstrip(b"=").decode() != expected


def _recorded_hash(path: str) -> str | None:
    for site in find_site_packages([path]):
        wanted = os.path.relpath(path, site).encode()
        for _, lines in read_records(site):
            for name, digest in map(split_line, lines):
                if name == wanted:
                    return digest or None
    return None


def _hash(file: int, algorithm: str) -> bytes:
    hasher = hashlib.new(algorithm)
    while block := os.read(file, 1 << 20):
        hasher.update(block)
    return hasher.digest()


def search_interpreter(paths: Iterable[str], prefix: str | None) -> dict[str, Owned]:
    """The program, libpython and the standard library's own modules, below `prefix` where that is known."""
    own = [
        path
        for path in paths
        if _INTERPRETER.search(path) and (prefix is None or path.startswith(prefix.rstrip("/") + "/"))
    ]
    releases = {path: read_release(path) for path in own if "/lib-dynload/" not in path}
    told = [release for release in releases.values() if release]
    return {path: Owned("interpreter", "CPython", releases.get(path) or _version_in(path, told)) for path in own}


def _version_in(path: str, told: Iterable[str]) -> str | None:
    """Where the file does not tell: `…/3.10.7/lib/libpython3.10.so` is 3.10.7, `/usr/bin/python3.10` is 3.10.

    A module of the standard library has the release that the program or libpython beside it has told.
    """
    minor = _MINOR_VERSION.search(path)
    for full in (*_PATCH_VERSION.findall(path), *told):
        if minor is None or full.startswith(minor[1] + "."):
            return str(full)
    return minor[1] if minor else None


def search_conda(paths: Iterable[str]) -> dict[str, Owned]:
    """By conda-meta/NAME-VERSION-BUILD.json of the environment that a file lies in."""
    owned: dict[str, Owned] = {}
    for prefix, inside in _group_by_conda_prefix(paths).items():
        wanted = {os.path.relpath(path, prefix).encode(): path for path in inside}
        for meta in sorted(Path(prefix, "conda-meta").glob("*.json")):
            name, version, _build = (*meta.stem.rsplit("-", 2), "", "")[:3]
            with contextlib.suppress(OSError):
                mine = wanted.keys() & set(_QUOTED_LIBRARY.findall(meta.read_bytes()))
                owned |= {wanted[path]: Owned("conda", name, version) for path in mine}
    return owned


def _group_by_conda_prefix(paths: Iterable[str]) -> dict[str, list[str]]:
    prefixes: dict[Path, bool] = {}
    groups: dict[str, list[str]] = {}
    for path in paths:
        for ancestor in Path(path).parents:
            if ancestor not in prefixes:
                prefixes[ancestor] = (ancestor / "conda-meta").is_dir()
            if prefixes[ancestor]:
                groups.setdefault(str(ancestor), []).append(path)
                break
    return groups


def search_dpkg(paths: Iterable[str], root: Path = _ROOT) -> dict[str, Owned]:
    """By /var/lib/dpkg/info/PACKAGE.list, where a file may stand under its name from before the /usr merge."""
    wanted = {name.encode(): path for path in paths for name in (_MERGED.sub("", path, count=1), path)}
    rare = {b".so" if b".so" in name else name[name.rfind(b"/") :] for name in wanted}  # most listings have none
    packages: dict[str, str] = {}
    for listing in sorted((root / "var/lib/dpkg/info").glob("*.list")) if wanted else ():
        with contextlib.suppress(OSError):
            data = listing.read_bytes()
            names = set(data.split(b"\n")) if any(word in data for word in rare) else set()
            packages |= dict.fromkeys((wanted[name] for name in wanted.keys() & names), listing.stem.partition(":")[0])
    versions = _dpkg_versions(set(packages.values()), root)
    return {path: Owned("system", package, versions.get(package)) for path, package in packages.items()}


def _dpkg_versions(packages: set[str], root: Path) -> dict[str, str]:
    try:
        status = (root / "var/lib/dpkg/status").read_text(errors="replace") if packages else ""
    except OSError:
        return {}
    found = (re.search(rf"^Package: {re.escape(name)}\n(?:.+\n)*?Version: (.+)$", status, re.M) for name in packages)
    return {name: match[1] for name, match in zip(packages, found, strict=True) if match}


def search_rpm(paths: Iterable[str]) -> dict[str, Owned]:
    """By `rpm -qf`, which answers with one line for each file, in their order."""
    asked = sorted(paths)
    rpm = find_program("rpm")
    if rpm is None or not asked:
        return {}
    command = [rpm, "-qf", "--queryformat", "%{NAME}\\t%{VERSION}-%{RELEASE}\\n", *asked]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_RPM_DEADLINE_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = answer.stdout.splitlines()
    if len(lines) != len(asked):
        return {}  # a file with two owners has two lines: then nobody knows which line is whose
    pairs = ((path, line.split("\t")) for path, line in zip(asked, lines, strict=True))
    return {path: Owned("system", *words) for path, words in pairs if len(words) == 2}


def name_owners(images: tuple[Image, ...], executable: str | None) -> tuple[Image, ...]:
    prefix = str(Path(executable).parents[1]) if executable and PYTHON_FILE.search(executable) else None
    return find_owners(images, find_site_packages(image.path for image in images), prefix)
