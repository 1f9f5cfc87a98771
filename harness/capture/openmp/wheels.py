"""The OpenMP and BLAS runtimes of wheels that are not installed, of any platform, and who links to whom among them.

Reads native members of the zip files, as they would lie in one site-packages directory; extracts and imports nothing.
Where the wheels come from is the business of wheel_download.py.
"""

from __future__ import annotations

import posixpath
import re
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from harness.capture.arrays.directory import TORN
from harness.capture.files.binaries import Binary, is_native, read_binaries
from harness.capture.files.linking import Linker
from harness.errors import HarnessError, Unreadable, UsageError
from harness.evidence.gap import Gap
from harness.evidence.openmp import Blas, Caller, Census, Place, Runtime

_MOST_MEMBER_BYTES = 3 << 30  # libtorch_cuda.so has 1.6 GB
_MOST_BYTES = 12 << 30  # of all native members together
_IN_MEMORY_BYTES = 256 << 20
_MOST_METADATA_BYTES = 4 << 20
_PREFIX = "/environment"  # where the wheels are thought to be installed
# https://packaging.python.org/en/latest/specifications/binary-distribution-format/#file-name-convention
_FILE_NAME = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-\d[^-]*)?-(?P<tags>[^-]+-[^-]+-[^-]+)\.whl", re.I)
_REQUIRES = re.compile(r"^Requires-Dist: *([A-Za-z0-9._-]+)[^;\n]*$", re.M)
_ACCELERATE = re.compile(r"/(Accelerate|vecLib)\.framework/")
_NOT_LOADED = (".dbg", ".debug", ".o")  # native, but nobody loads them


class _Wheel(NamedTuple):
    path: Path
    distribution: str
    version: str
    python: str | None
    platforms: frozenset[str]
    requires: frozenset[str]


class _Native(NamedTuple):
    """One native member. `place` is where it would be installed, `image` how it is called in the census."""

    wheel: _Wheel
    place: str
    image: str
    binary: Binary


class _Reading:
    """What has been read so far; the limits hold for all wheels together."""

    def __init__(self) -> None:
        self.natives: dict[str, _Native] = {}
        self.gaps: list[Gap] = []
        self.left_bytes = _MOST_BYTES


def find_wheels(paths: Iterable[Path]) -> list[Path]:
    """Files as they are; of a directory every *.whl in it."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob("*.whl"))
            if not inside:
                raise HarnessError(f"no wheel (*.whl) in {path}", hint=f"pip download -d {path} -r requirements.txt")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise HarnessError(f"no such file: {path}", hint="harness openmp --wheels DIR")
    if not found:
        raise UsageError("no wheel was named", hint="harness openmp --wheels DIR")
    return found


def read_wheels(
    paths: Iterable[Path],
    *,
    platform: str | None = None,
    python: str | None = None,
    absent: tuple[str, ...] = (),
    gaps: tuple[Gap, ...] = (),
) -> Census:
    """`platform` and `python`: what they were chosen for; else what their names say."""
    wheels = [_open_wheel(path) for path in paths]
    platform = platform or _common_platform(wheels)
    python = python or next((wheel.python for wheel in wheels if wheel.python), None)
    _check_unique(wheels)
    reading = _Reading()
    for wheel in wheels:
        _read_members(wheel, platform, python or "3", reading)
    natives = list(reading.natives.values())
    images = {native.place: native.binary for native in natives}
    linker = Linker(images.get, images=images)
    return Census(
        subject="wheels",
        name=", ".join(f"{wheel.distribution}=={wheel.version}" for wheel in wheels),
        python=python,
        platform=platform,
        images=len(natives),
        runtimes=tuple(_runtime(native) for native in natives if native.binary.runtime),
        blas=tuple(_list_blas(natives)),
        callers=tuple(_callers(natives, reading, linker)),
        absent=absent,
        gaps=(*gaps, *reading.gaps, *_not_given(wheels)),
    )


def _runtime(native: _Native) -> Runtime:
    runtime = native.binary.runtime
    assert runtime is not None
    return Runtime(_place(native), runtime.family, runtime.version, static=runtime.static)


def _list_blas(natives: list[_Native]) -> Iterator[Blas]:
    frameworks = {}
    for native in natives:
        for copy in native.binary.blas:
            if copy.kind == "accelerate":  # the system's, not in the wheel
                name = next(filter(_ACCELERATE.search, native.binary.needed))
                frameworks[name] = Blas(Place(name, owner="system"), copy.kind, copy.config)
            else:
                yield Blas(_place(native), copy.kind, copy.config, copy.threading)
    yield from frameworks.values()


def _place(native: _Native) -> Place:
    wheel = native.wheel
    return Place(native.image, distribution=wheel.distribution, version=wheel.version, owner="wheel")


def _callers(natives: list[_Native], reading: _Reading, linker: Linker) -> Iterator[Caller]:
    for native in natives:
        bindings = linker.bind(native.place, native.binary)
        named = (replace(b, runtime=reading.natives[b.runtime].image) if b.runtime else b for b in bindings)
        if bindings:
            yield Caller(_place(native), tuple(named))


def _open_wheel(path: Path) -> _Wheel:
    match = _FILE_NAME.fullmatch(path.name)
    if match is None:
        raise HarnessError(
            f"{path} is not named like a wheel (NAME-VERSION-PYTHON-ABI-PLATFORM.whl)",
            hint="pip download --only-binary=:all: gives wheels their right names",
        )
    pythons, _, platforms = match["tags"].split("-")
    minor = re.search(r"cp3(\d+)", pythons)
    try:
        with zipfile.ZipFile(path) as archive:
            metadata = _read_metadata(archive)
    except TORN as error:
        raise HarnessError(f"{path} is not a wheel: {error}", hint="download it again") from None
    name = re.search(r"^Name: *(\S+)", metadata, re.M)
    return _Wheel(
        path,
        name[1] if name else match["name"],
        match["version"],
        f"3.{minor[1]}" if minor else None,
        frozenset(platforms.split(".")) - {"any"},
        frozenset(_normal(name) for name in _REQUIRES.findall(metadata)),
    )


def _read_metadata(archive: zipfile.ZipFile) -> str:
    for info in archive.infolist():
        if re.fullmatch(r"[^/]+\.dist-info/METADATA", info.filename) and info.file_size <= _MOST_METADATA_BYTES:
            _check_compression(info)
            return archive.read(info).decode(errors="replace").partition("\n\n")[0]
    return ""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _common_platform(wheels: list[_Wheel]) -> str:
    """The newest tag that one of them has; all must be for the same system and machine."""
    tags = {tag for wheel in wheels for tag in wheel.platforms}
    systems = [{_system(tag) for tag in wheel.platforms} for wheel in wheels if wheel.platforms]
    if systems and not set.intersection(*systems):
        named = ", ".join(f"{wheel.path.name}" for wheel in wheels if wheel.platforms)
        raise UsageError(f"the wheels are for different platforms: {named}", hint="one platform at a time")
    both = set.intersection(*systems) if systems else set()
    fitting = [tag for tag in tags if _system(tag) in both]
    return max(fitting, key=lambda tag: [int(part) for part in re.findall(r"\d+", tag)], default="any")


def _system(tag: str) -> str:
    """`macosx_14_0_arm64` is macosx_arm64; a universal wheel fits both machines, and is taken for the newer one."""
    kind = re.match(r"[a-z]+", tag)
    machine = re.search(r"(x86_64|amd64|aarch64|arm64|universal2|i686|armv7l|ppc64le|s390x|riscv64|win32)$", tag)
    name = (kind[0] if kind else tag).replace("manylinux", "linux")
    return f"{name}_{machine[1] if machine else ''}".replace("universal2", "arm64")


def _check_unique(wheels: list[_Wheel]) -> None:
    seen: dict[str, _Wheel] = {}
    for wheel in wheels:
        other = seen.setdefault(_normal(wheel.distribution), wheel)
        if other is not wheel:
            raise UsageError(
                f"two wheels of {wheel.distribution}: {other.path.name} and {wheel.path.name}",
                hint="harness openmp --wheels with one wheel of each distribution",
            )


def _not_given(wheels: list[_Wheel]) -> Iterator[Gap]:
    """What they require on every platform. Behind a marker is what other platforms or extras need."""
    given = {_normal(wheel.distribution) for wheel in wheels}
    missing = sorted({name for wheel in wheels for name in wheel.requires} - given)
    if missing:
        yield Gap(
            "dependencies", f"required by these wheels and not among them: {', '.join(missing)}", "pip freeze names all"
        )


# --- the members of one wheel -----------------------------------------------------------------------------------------


def _read_members(wheel: _Wheel, platform: str, python: str, reading: _Reading) -> None:
    machine = _machine(platform)
    with zipfile.ZipFile(wheel.path) as archive:
        for info in archive.infolist():
            what = f"{info.filename} in {wheel.path.name}"
            try:
                if info.filename.endswith(("/", *_NOT_LOADED)) or not _is_native(archive, info):
                    continue
                place = _install_place(info.filename, platform, python)
                if place is None:
                    reading.gaps.append(Gap(what, "its name would lead out of the environment; left out"))
                elif info.file_size > min(_MOST_MEMBER_BYTES, reading.left_bytes):
                    reading.gaps.append(Gap(what, f"too large to be read: {info.file_size} bytes"))
                else:
                    reading.left_bytes -= info.file_size
                    image = _image_name(place, platform, python)
                    binary = _for_machine(_read_member(archive, info), machine)
                    reading.natives[place] = _Native(wheel, place, image, binary)
            except TORN as error:
                reading.gaps.append(Gap(what, f"cannot be read: {error}"))


def _check_compression(info: zipfile.ZipInfo) -> None:
    """The others have each an exception of their own, and may not be there in every Python."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Unreadable("compressed in a way that wheels are not")


def _is_native(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bool:
    _check_compression(info)
    with archive.open(info) as file:
        return is_native(file.read(4))


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> list[Binary]:
    """zipfile gives no more than the declared size, which has been checked."""
    if info.file_size <= _IN_MEMORY_BYTES:
        return read_binaries(archive.read(info))
    with tempfile.NamedTemporaryFile(prefix="harness-") as copy, archive.open(info) as file:
        while block := file.read(1 << 22):
            copy.write(block)
        copy.flush()
        return read_binaries(Path(copy.name))


def _for_machine(images: list[Binary], machine: str | None) -> Binary:
    if not images:
        raise Unreadable("no image in it")
    return next((image for image in images if image.machine == machine), images[0])


def _machine(platform: str) -> str | None:
    tail = re.search(r"(x86_64|amd64|aarch64|arm64)$", platform)
    return "x86_64" if tail and tail[1] == "amd64" else tail[1] if tail else None


def _install_place(name: str, platform: str, python: str) -> str | None:
    """Where pip would put it; null: nowhere that it may. A `.data/scripts` file is no library and stays where it is."""
    if not name or "\\" in name or name.startswith("/") or ".." in name.split("/") or re.match(r"[A-Za-z]:", name):
        return None
    data = re.match(r"[^/]+\.data/(?P<scheme>[^/]+)/(?P<rest>.+)", name)
    if data and data["scheme"] == "data":
        return posixpath.join(_PREFIX, data["rest"])
    if data and data["scheme"] in ("purelib", "platlib"):
        name = data["rest"]
    return posixpath.normpath(posixpath.join(_site_packages(platform, python), name))


def _site_packages(platform: str, python: str) -> str:
    return f"{_PREFIX}/" + ("Lib/site-packages" if platform.startswith("win") else f"lib/python{python}/site-packages")


def _image_name(place: str, platform: str, python: str) -> str:
    """Relative to site-packages, as RECORD has it; what lies elsewhere, to the environment."""
    return place.removeprefix(_site_packages(platform, python) + "/").removeprefix(_PREFIX + "/")
