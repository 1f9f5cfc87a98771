"""One OpenMP runtime for a whole environment: which copy can serve for which, and the links that make it so.

Plans from a census of the environment and the files themselves; links.py writes. Whether a fix is needed is decided in
`diagnose`. Families are never mixed: LLVM's and Intel's runtimes are kin, but nobody promises that one can replace the
other.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from harness.capture.files.binaries import read_binaries
from harness.capture.files.formats.elf import Elf
from harness.capture.files.formats.symbol_versions import Demand, Offer, read_demand, read_offer
from harness.documents.openmp_fix import Link, Outcome, Plan, Refusal
from harness.errors import HarnessError, UsageError
from harness.evidence.openmp import Caller, Census, Family, Runtime
from harness.remedy.links import Hook, describe_link, make_links, read_journal, undo_links

_OPENMP = (b"omp_", b"GOMP_", b"__kmpc_", b"kmp_", b"GOACC_", b"acc_", b"ompt_")


class _Copy(NamedTuple):
    """`names`: under which its callers know it."""

    path: Path
    runtime: Runtime
    callers: list[Caller]
    names: set[str]


def plan_fix(census: Census, prefix: Path, keep: str | None = None) -> Plan:
    """`keep`: a copy's path, the end of it, or its distribution; else the newest that is sufficient for all."""
    prefix = prefix.resolve()
    journal = read_journal(prefix)
    copies, refused = _sort_out(_find_copies(census), prefix)
    chosen = _pick(copies, keep) if keep is not None else None
    serving = {prefix / link.target for link in journal.links}
    kept: list[str] = []
    links: list[Link] = []
    for family, alike in _by_family(copies).items():
        if chosen and chosen.runtime.family != family:
            continue
        wanted = chosen if chosen in alike else next((copy for copy in alike if copy.path in serving), None)
        called = [copy for copy in alike if copy.callers or copy is wanted]
        if len(called) < 2:
            continue
        best, lacking = _choose(called, wanted)
        if best is None:
            refused += [Refusal(str(copy.path), lacking) for copy in called]
            continue
        kept.append(str(best.path.relative_to(prefix)))
        links += [describe_link(prefix, copy.path, best.path) for copy in called if copy is not best]
    refused += _across_families(copies, chosen or next((copy for copy in copies if copy.callers), None))
    made = [link.path for link in journal.links]
    broken = [path for path in made if (prefix / path).is_symlink() and not (prefix / path).exists()]
    return Plan(str(prefix), tuple(kept), tuple(links), tuple(refused), tuple(made), tuple(broken))


def apply(plan: Plan, hook: Hook = lambda step: None) -> Outcome:
    """Also finishes a fix that was ended half way."""
    return make_links(Path(plan.prefix), plan.links, hook)


def undo(prefix: Path, hook: Hook = lambda step: None) -> Outcome:
    return undo_links(prefix.resolve(), hook)


def _find_copies(census: Census) -> list[_Copy]:
    """One for each file, whatever links lead to it."""
    copies: dict[Path, _Copy] = {}
    for runtime in census.runtimes:
        path = Path(os.path.realpath(runtime.place.image))
        copy = copies.setdefault(path, _Copy(path, runtime, [], {path.name}))
        copy.names.add(Path(runtime.place.image).name)
        copy.callers.extend(caller for caller in census.callers if _calls(caller, runtime))
    return list(copies.values())


def _calls(caller: Caller, runtime: Runtime) -> bool:
    return any(binding.runtime == runtime.place.image for binding in caller.bindings)


def _sort_out(copies: list[_Copy], prefix: Path) -> tuple[list[_Copy], list[Refusal]]:
    usable, refused = [], []
    for copy in copies:
        if copy.runtime.static:
            refused.append(Refusal(str(copy.path), "the runtime is part of a larger library and cannot be replaced"))
        elif copy.runtime.place.owner in ("system", "interpreter"):
            refused.append(Refusal(str(copy.path), "belongs to the system, whose files harness does not change"))
        elif prefix not in copy.path.parents:
            refused.append(Refusal(str(copy.path), "lies outside of the environment, where harness changes nothing"))
        else:
            usable.append(copy)
    return usable, refused


def _by_family(copies: list[_Copy]) -> dict[Family, list[_Copy]]:
    families: dict[Family, list[_Copy]] = {}
    for copy in copies:
        families.setdefault(copy.runtime.family, []).append(copy)
    return families


def _pick(copies: list[_Copy], keep: str) -> _Copy:
    def is_meant(copy: _Copy) -> bool:
        path, image = str(copy.path), copy.runtime.place.image
        return copy.runtime.place.distribution == keep or any(
            text == keep or text.endswith("/" + keep) for text in (path, image)
        )

    meant = [copy for copy in copies if is_meant(copy)]
    if len(meant) != 1:
        names = ", ".join(str(copy.path) for copy in meant or copies)
        raise UsageError(f"--keep {keep} fits {len(meant) or 'none'} of the copies", hint=f"one of: {names}")
    return meant[0]


def _choose(copies: list[_Copy], wanted: _Copy | None) -> tuple[_Copy | None, str]:
    """The copy, or why there is none."""
    offers = {copy.path: _read_offer(copy.path) for copy in copies}
    ranked = sorted(copies, key=lambda copy: _rank(copy, offers[copy.path]), reverse=True)
    reasons = []
    for best in [wanted] if wanted else ranked:
        lacks = [lack for copy in copies if copy is not best and (lack := _lacks(best, copy, offers))]
        if not lacks:
            return best, ""
        reasons.append(f"{best.path} {lacks[0]}")
    return None, "no copy can serve for all: " + "; ".join(reasons)


def _rank(copy: _Copy, offer: Offer) -> tuple[object, ...]:
    """The newest. Every LLVM release calls itself 5.0: the later one is the one that defines more.

    Of equals one whose name will be the same in the next release of its package; auditwheel puts a hash into it.
    """
    version = tuple(map(int, re.findall(r"\d+", copy.runtime.version or "")))
    stable = not re.search(r"-[0-9a-f]{8,}\.", copy.path.name)
    return version, len(offer.versions), len(offer.symbols), stable, len(copy.callers), str(copy.path)


def _lacks(best: _Copy, copy: _Copy, offers: dict[Path, Offer]) -> str | None:
    """What the callers of `copy` get from it and would not get from `best`."""
    beside = [name for name in _read_needed(best.path) if (best.path.parent / name).exists()]
    if absent := [name for name in beside if not (copy.path.parent / name).exists()]:
        return f"needs {absent[0]}, which lies beside it and not beside {copy.path}"
    offered = {name for name, _ in offers[copy.path].symbols}
    names = copy.names | {image.name for image in read_binaries(copy.path) if image.name}
    for caller in copy.callers:
        symbols = {symbol for binding in caller.bindings for symbol in binding.symbols} & offered
        lacking = offers[best.path].lacks(_read_demand(Path(caller.place.image), names, symbols))
        if lacking:
            return f"does not define {', '.join(lacking[:3])}, which {caller.place.image} calls"
    return None


def _across_families(copies: list[_Copy], first: _Copy | None) -> list[Refusal]:
    """`first`: the one that the others would have to be linked to."""
    return [
        Refusal(str(copy.path), f"is of another family ({copy.runtime.family}) than {first.path}")
        for copy in copies
        if first and copy.callers and copy.runtime.family != first.runtime.family
    ]


def _read_offer(path: Path) -> Offer:
    try:
        if _is_elf(path):
            with Elf(path) as elf:
                return read_offer(elf, _OPENMP)
        images = [frozenset((name, None) for name in image.defines) for image in read_binaries(path)]
        return Offer(frozenset.intersection(*images), frozenset())
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _read_needed(path: Path) -> set[str]:
    """The names of what it looks for in its own folder."""
    return {name.removeprefix("@loader_path/") for image in read_binaries(path) for name in image.needed}


def _read_demand(path: Path, names: set[str], symbols: set[str]) -> Demand:
    try:
        if _is_elf(path):
            with Elf(path) as elf:
                return read_demand(elf, names, symbols)
        return Demand(frozenset((symbol, None) for symbol in symbols), frozenset())
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _unreadable(path: Path, error: Exception) -> HarnessError:
    return HarnessError(f"cannot read {path}: {error}", hint="harness openmp shows what can be read")
