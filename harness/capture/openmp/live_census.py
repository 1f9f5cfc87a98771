"""The OpenMP and BLAS runtimes of a running process, who calls which, and whose they are. Linux.

`complete` turns what was seen of the process (sighting.py) into a census: by what the files hold and who installed
them. It needs the process no more, unless that lives among other files (a container).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from harness.capture.files.binaries import Binary
from harness.capture.files.images import PYTHON_FILE, Row, read_maps
from harness.capture.files.owners import check_modified, find_owners, find_site_packages, search_dpkg
from harness.capture.files.scan_cache import Memory, default_place, identity_of
from harness.capture.openmp.environment import read_file
from harness.capture.openmp.live_images import BINDINGS, RECORD, Seen, Sighting, Slot, look_while_held
from harness.errors import HarnessError
from harness.evidence.crash import Image
from harness.evidence.gap import Gap
from harness.evidence.openmp import Binding, BindingState, Blas, Caller, Census, Place, Runtime

_PROC = Path("/proc")
_REPLACED = "the file was replaced or removed after it was loaded"


def take_census(pid: int, proc: Path = _PROC) -> Census:
    """HarnessError when there is no such process or it may not be looked at."""
    sighting = look_while_held(pid, _read_maps(pid, proc), proc)
    _read_maps(pid, proc)  # one that has ended meanwhile was not seen
    return complete(sighting)


def _read_maps(pid: int, proc: Path) -> list[Row]:
    try:
        rows = read_maps(pid, proc)
    except (FileNotFoundError, ProcessLookupError) as error:
        raise HarnessError(f"There is no process {pid}.", hint="harness ps") from error
    except PermissionError as error:
        message = f"Process {pid} belongs to another user, or may not be traced."
        raise HarnessError(message, hint=f"sudo harness openmp {pid}") from error
    if not rows:
        raise HarnessError(f"Process {pid} has no memory: it has ended, or is the kernel's.", hint="harness ps")
    return rows


def complete(sighting: Sighting, owned: Iterable[Image] = ()) -> Census:
    """`owned`: the images with their owners, where the caller has them already."""
    gaps = list(sighting.gaps)
    owners = {image.base: image for image in owned} or _find_owners(sighting)
    places = {seen.base: _place(seen.image, owners.get(seen.image.base)) for seen in sighting.images}
    memory = Memory(None if sighting.root else default_place())
    binaries = {seen.base: _identify(seen, sighting.root, memory, gaps) for seen in sighting.images}
    memory.save()
    gaps += _replaced_gaps(sighting, binaries)
    gaps += _record_gaps(sighting)
    return Census(
        subject="process",
        name=str(sighting.pid),
        python=_python_version(places.values()),
        platform=f"linux-{_machine(binaries.values())}",
        images=len(sighting.images),
        runtimes=tuple(_list_runtimes(sighting, binaries, places)),
        blas=tuple(_list_blas(sighting, binaries, places)),
        callers=tuple(_list_callers(sighting, places)),
        settings=sighting.settings,
        gaps=tuple(gaps),
    )


def _find_owners(sighting: Sighting) -> dict[str, Image]:
    """Looked up under the names that the files have for us, shown under those that the process knows."""
    root, program = sighting.root, sighting.executable
    images = [replace(seen.image, path=root + seen.image.path) for seen in sighting.images]
    prefix = root + str(Path(program).parents[1]) if program and PYTHON_FILE.search(program) else None
    owned = find_owners(images, find_site_packages(image.path for image in images), prefix)
    shown = {image.base: replace(image, path=image.path.removeprefix(root)) for image in owned}
    if root:  # dpkg's lists have the process's names
        found = search_dpkg({image.path for image in shown.values() if image.owner == "unowned"}, Path(root))
        shown |= {
            base: replace(image, **found[image.path]._asdict())
            for base, image in shown.items()
            if image.path in found and image.owner == "unowned"
        }
    return shown


def _place(image: Image, owned: Image | None) -> Place:
    of = owned or image
    return Place(
        image.path, image.base, of.distribution, None if image.deleted else of.version, of.owner, image.deleted
    )


def _identify(seen: Seen, root: str, memory: Memory, gaps: list[Gap]) -> Binary | None:
    if seen.replaced:
        return seen.binary
    path = root + seen.image.path
    try:
        read = read_file(path, identity_of(path), memory)
    except OSError as error:
        gaps.append(Gap(f"what {seen.image.path} is", str(error)))
        return None
    if read.problem is not None:
        gaps.append(Gap(f"what {seen.image.path} is", read.problem))
    return next(iter(read.images), None)


def _replaced_gaps(sighting: Sighting, binaries: dict[int, Binary | None]) -> Iterator[Gap]:
    for seen in sighting.images:
        binary = binaries[seen.base]
        if seen.replaced and binary is None:
            yield Gap(f"what {seen.image.path} is", _REPLACED, "restart the process")
        elif seen.replaced and binary and binary.matters:
            yield Gap(f"owner's version of {seen.image.path}", f"{_REPLACED}; read from memory", "restart the process")


def _record_gaps(sighting: Sighting) -> Iterator[Gap]:
    for record in sighting.records:
        if record.stale and record.file:
            why = f"{record.file} was left by an earlier process with the same pid"
            yield Gap(RECORD, f"{why}; a runtime that finds it can stop with Error #15", f"rm {record.file}")


def _list_runtimes(
    sighting: Sighting, binaries: dict[int, Binary | None], places: dict[int, Place]
) -> Iterator[Runtime]:
    for seen in sighting.images:
        copy = getattr(binaries[seen.base], "runtime", None)
        if copy is None:
            continue
        place = places[seen.base]
        if place.owner == "wheel":
            place = replace(place, modified=check_modified(replace(seen.image, path=sighting.root + seen.image.path)))
        registers = copy.family in ("llvm", "intel")
        registered = _is_registered(seen, sighting) if registers else None
        yield Runtime(
            place=place,
            family=copy.family,
            version=copy.version,
            static=copy.static,
            registered=registered,
            initialised=_is_initialised(registered, sighting) if registers else _has_workers(seen, sighting),
        )


def _is_registered(seen: Seen, sighting: Sighting) -> bool | None:
    """Null: the records could not be looked for everywhere, and none is of this copy."""
    if any(seen.base <= record.address < seen.end for record in sighting.records if not record.stale):
        return True
    return None if any(gap.what in (BINDINGS, RECORD) for gap in sighting.gaps) else False


def _is_initialised(registered: bool | None, sighting: Sighting) -> bool | None:
    """One that is not registered while another is may run all the same, under KMP_DUPLICATE_LIB_OK."""
    another = any(not record.stale for record in sighting.records)
    return None if another and not registered else registered


def _has_workers(seen: Seen, sighting: Sighting) -> bool | None:
    """GNU's threads wait in a system call of libgomp's own. Null: none waits there, which proves nothing."""
    return any(seen.base <= address < seen.end for address in sighting.waiting) or None


def _list_blas(sighting: Sighting, binaries: dict[int, Binary | None], places: dict[int, Place]) -> Iterator[Blas]:
    for seen in sighting.images:
        for copy in getattr(binaries[seen.base], "blas", ()):
            threads = seen.openblas_threads if copy.kind == "openblas" else None
            yield Blas(places[seen.base], copy.kind, copy.config, copy.threading, threads)


def _list_callers(sighting: Sighting, places: dict[int, Place]) -> Iterator[Caller]:
    for seen in sighting.images:
        groups: dict[tuple[BindingState, int | None], set[str]] = {}
        for slot in seen.slots:
            groups.setdefault(_follow(slot, seen, sighting.images), set()).add(slot.name)
        if groups:
            yield Caller(places[seen.base], tuple(_binding(*key, names, places) for key, names in groups.items()))


def _follow(slot: Slot, caller: Seen, images: tuple[Seen, ...]) -> tuple[BindingState, int | None]:
    """The base of the image that the call leads to. A null value could not be read: the file only asks for it."""
    if slot.value is None:
        return "linked", None
    target = next((seen for seen in images if seen.base <= slot.value < seen.end), None)
    if target is caller:
        return "lazy", None
    return ("bound", target.base) if target else ("unresolved", None)


def _binding(state: BindingState, base: int | None, names: set[str], places: dict[int, Place]) -> Binding:
    symbols = tuple(sorted(names))
    return Binding(state, symbols) if base is None else Binding(state, symbols, places[base].image, places[base].base)


def _python_version(places: Iterable[Place]) -> str | None:
    """As the interpreter's own files are called: 3.11.7, or 3.11 where no more is known."""
    versions = {place.version for place in places if place.owner == "interpreter" and place.version}
    return max(versions, key=len, default=None)


def _machine(binaries: Iterable[Binary | None]) -> str:
    return next((binary.machine for binary in binaries if binary), os.uname().machine)
