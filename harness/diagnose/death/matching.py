"""How a row of the table of kinds is tried against a reading: its texts, its signals, its own rule.

A text is a cause where the one who prints it is seen to have ended the process: the exception that the process told
of, the library that called abort() or exit(). A text alone may be quoted and only supports. Knows no kind by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from harness.diagnose.death.crash.address import LOWEST_MAPPED
from harness.diagnose.death.last_words import Place
from harness.diagnose.death.reading import Reading
from harness.diagnose.death.sender import is_sent_by_process
from harness.diagnose.plumbing import image_name, is_interpreter
from harness.documents.verdict import Ground, Remedy, Status

EXCEPTION = "exception"  # the text is how the uncaught exception begins, with its type
EXIT = "exit"  # the text is among the last words of a process that left with a non-zero status; exit=N: with that one
# Which images print a text and call abort() or exit() themselves: a text without a known speaker only supports.
LIBC = re.compile(r"libc[.-].*|libc\.musl-.*|ld-musl-.*")
CPP_RUNTIME = re.compile(r"lib(?:stdc\+\+|c\+\+|c\+\+abi)[.-].*")
RUST_RUNTIME = re.compile(r"libstd-[0-9a-f]+\.(?:so|dylib)")
OPENBLAS = re.compile(r".*openblas.*")
OPENMP = re.compile(r"lib(?:gomp|i?omp5?)[.-].*")  # and whatever else holds a runtime: by content
CUDA = re.compile(r"lib(?:cuda|cudart|c10_cuda|torch_cuda)[\w-]*\..*")
METAL = re.compile(r"lib(?:MPS|Metal|MTL)\w*\..*|(?:MPS|Metal|MTL|AGXMetal)\w*")
TORCH = re.compile(r"lib(?:stdc\+\+|c\+\+|c\+\+abi|c10|torch)\w*[.-].*")
# What a panic of Rust's comes to its end by, as a person writes it and as it stands in the file.
RUST_PANIC = re.compile(
    r"(?:.*::|_R.*|_ZN.*)?(?:__)?(?:rust_panic|rust_start_panic|rust_begin_unwind)(?:\W.*|17h\w+E)?"
)
_FFI = re.compile(r"libffi[.-].*")  # what was called through it, has nothing else inside
MAC_MALLOC = re.compile(r"libsystem_(?:malloc|c)\.dylib")

MAY_BE_LOGGED = (
    "a program that prints a traceback and then chooses to leave (sys.exit(1), os._exit(1)) looks the same from outside"
)
_MAY_BE_ANOTHERS = "another process could have printed the text that names the cause"
_MAY_BE_OLDER = "other lines follow the text that names the cause: they may be the rest of it, or show that it went on"
_MAY_BE_QUOTED = "the text was printed; that the one who prints it ended the process was not seen"


# Those that may be linked into any library, or whose image is not known.
_ANYWHERE = (None, CPP_RUNTIME, CUDA, METAL, OPENBLAS, RUST_RUNTIME, TORCH)


class Marker(NamedTuple):
    """A line that explains a death, if the death is one of `ends`. `sample`: a file of tests/data/logs, or text.

    `remedy`: what helps against this one, in place of the kind's. `speaker`: the image that calls abort() or exit()
    after it has printed this line. `caller`: where it may be linked into any image, the functions that do.
    """

    pattern: re.Pattern[str]
    ends: frozenset[str]
    sample: str
    remedy: Remedy | None = None
    speaker: re.Pattern[str] | None = None
    caller: re.Pattern[str] | None = None

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return () if self.remedy is None else (self.remedy,)


class Finding(NamedTuple):
    """`remedies`: in place of the kind's."""

    status: Status
    detail: str
    grounds: tuple[Ground, ...]
    groups: dict[str, str]
    against: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()


class Kind(NamedTuple):
    """`signals`: those that are this kind by themselves, each with the detail it stands for.

    `headline` is formatted with {detail}, {after} (": detail" or nothing), {where} (process and Python line), {signal},
    {sender} and the named groups of the marker. `names_limit`: what was refused has a limit behind it, to be named.
    """

    name: str
    meaning: str
    headline: str
    markers: tuple[Marker, ...] = ()
    signals: Mapping[str, str] = {}
    rule: Callable[[Reading], Finding | None] | None = None
    remedies: tuple[Remedy, ...] = ()
    next: str | None = None
    ends_well: bool = False
    names_limit: bool = False


def marker(
    pattern: str,
    ends: str,
    sample: str,
    remedy: Remedy | None = None,
    speaker: re.Pattern[str] | None = None,
    caller: re.Pattern[str] | None = None,
) -> Marker:
    return Marker(re.compile(pattern, re.MULTILINE), frozenset(ends.split()), sample, remedy, speaker, caller)


def match(kind: Kind, reading: Reading, kinds: tuple[Kind, ...]) -> Finding | None:
    if reading.exit_code == 0:
        return kind.rule(reading) if kind.rule and kind.ends_well else None
    own = _match_without_text(kind, reading)
    for marker in kind.markers:
        if finding := _match_marker(marker, reading, kinds):
            finding = finding._replace(remedies=marker.remedies)
            return _join(own, finding, reading) if own is not None and own.status == "established" else finding
    return own


def _join(own: Finding, text: Finding, reading: Reading) -> Finding:
    """A text tells more of a kind that is proven without it, as of an abort; one that may be quoted is told beside.

    A status of its own that goes with the last words of one who was alone is as good as it gets: nobody calls abort().
    """
    if text.status == "established" or (reading.signame is None and _MAY_BE_ANOTHERS not in text.against):
        return text._replace(status="established")
    return own._replace(grounds=(*own.grounds, *text.grounds), against=(*own.against, *text.against))


def _match_without_text(kind: Kind, reading: Reading) -> Finding | None:
    if reading.signame is not None and claims(kind, reading):
        return Finding(status_of_death(reading), kind.signals[reading.signame], (), {})
    return kind.rule(reading) if kind.rule else None


def claims(kind: Kind, reading: Reading) -> bool:
    """Whether the signal is this kind by itself. A detail is the kernel's reason, and does not hold for one sent."""
    detail = kind.signals.get(reading.signame or "")
    return detail is not None and not (detail and is_sent_by_process(reading))


def _match_marker(marker: Marker, reading: Reading, kinds: tuple[Kind, ...]) -> Finding | None:
    if EXCEPTION in marker.ends and (finding := _match_exception(marker, reading)):
        return finding
    ended_by = reading.signame or (EXIT if reading.culprit.ending else None)
    if marker.ends == {EXCEPTION}:
        return None
    if ended_by is not None and marker.ends.isdisjoint({ended_by, f"{EXIT}={reading.exit_code}"}):
        return None
    status = _status_of_text(marker, reading)
    seen = reading.said(marker.pattern) if status == "established" else reading.last_words(marker.pattern)
    if status is None or seen is None or _said_more(marker, seen, reading, kinds):
        return None
    found, place = seen
    text, against = _detail(found), () if status == "established" else (_MAY_BE_QUOTED,)
    if not reading.is_log and reading.may_be_printed_by_another(found, place):
        status, against = "supported", (*against, _MAY_BE_ANOTHERS)
    elif status == "established" and reading.is_followed(found, place):
        status, against = "supported", (_MAY_BE_OLDER,)
    return Finding(status, text, (Ground(f"printed: {text}", str(place)),), _groups(found), against)


def _said_more(marker: Marker, seen: tuple[re.Match[str], Place], reading: Reading, kinds: tuple[Kind, ...]) -> bool:
    """Of all that one speaker prints before it ends the process, what came last was meant."""
    found, place = seen
    end = place.number + found[0].count("\n")
    rivals = [other for kind in kinds for other in kind.markers if other.speaker is marker.speaker is not None]
    later = (reading.said(other.pattern) for other in rivals if other is not marker)
    return any(more is not None and more[1].file == place.file and more[1].number > end for more in later)


def _match_exception(marker: Marker, reading: Reading) -> Finding | None:
    for item in reading.exceptions:
        if found := marker.pattern.match(item.text):
            certain = reading.is_proven and not reading.is_log
            ground = Ground(f"{'uncaught' if certain else 'printed:'} {item.sentence}", str(item.end))
            against = () if certain or reading.is_log else (MAY_BE_LOGGED,)
            status: Status = "established" if certain else "supported"
            return Finding(status, _detail(found), (ground,), _groups(found), against)
    return None


def _status_of_text(marker: Marker, reading: Reading) -> Status | None:
    """Null: who ended the process is known, and does not print this."""
    if reading.is_log:
        return "supported"
    if reading.exit is not None and (reading.exit.finalised or reading.exit.uncaught):
        return None
    ended_by = reading.exit.caller if reading.exit else reading.aborting_image
    if ended_by is None or (reading.exit is None and reading.signame != "SIGABRT"):
        return "supported"
    caller = image_name(ended_by)
    if is_interpreter(caller) or _FFI.fullmatch(caller):
        return None
    if marker.speaker is not None and (marker.speaker.fullmatch(caller) or _is_runtime(marker, reading)):
        return "established"
    if marker.caller is not None and any(map(marker.caller.fullmatch, reading.functions_below)):
        return "established"
    return "supported" if marker.speaker in _ANYWHERE else None


def _is_runtime(marker: Marker, reading: Reading) -> bool:
    census = reading.crash.openmp if reading.crash else None
    images = {runtime.place.image for runtime in census.runtimes} if census else set()
    return marker.speaker is OPENMP and reading.aborting_image in images


def _detail(found: re.Match[str]) -> str:
    """The whole text, or the part of it that the pattern calls `what`."""
    return " ".join((found.groupdict().get("what") or found[0]).split()).rstrip(":")


def _groups(found: re.Match[str]) -> dict[str, str]:
    return {name: value or "" for name, value in found.groupdict().items()}


def status_of_death(reading: Reading) -> Status:
    culprit = reading.culprit
    proven = culprit.seen and culprit.linked and not reading.is_log and not _is_unplaced(reading)
    return "established" if proven else "supported"


def _is_unplaced(reading: Reading) -> bool:
    """Only what was mapped where tells a wild pointer from a guard page or a full /dev/shm; a null pointer is one."""
    crash = reading.crash
    if crash is None or reading.signame not in ("SIGSEGV", "SIGBUS") or reading.is_sent:
        return False
    return not crash.mappings and not crash.images and int(crash.fault_address or "0x0", 16) >= LOWEST_MAPPED
