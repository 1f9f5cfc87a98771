"""A case as the facts that it holds: what `run`, `attach` and the arms of `repro` have written, read again.

It may come from another machine, and anybody may have written it: what is read is read strictly by its type, within
bounds, and through no link inside the case. Judges nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from harness.errors import BadCase, Unreadable
from harness.evidence.case import read_marker
from harness.evidence.crash import Crash
from harness.evidence.living.look import Look, check_look
from harness.evidence.memory import Course, Timeline
from harness.evidence.run import EVIDENCE_SCHEMA, Evidence
from harness.evidence.text.answers import read_bounded
from harness.evidence.text.kept_output import read_output
from harness.evidence.text.undecoded import decode_document

_Fact = TypeVar("_Fact")
_HEX = re.compile(r"0x[0-9a-f]{1,16}")
_CHANNEL = re.compile(r"[a-z]{1,20}")  # which its files are called by
_CODE = re.compile(r"(?:[0-9a-f]{2}){0,64}")


def load_evidence(case: Path) -> Evidence:
    """What the verdict of a run was made of, to the last line of its output. BadCase: it is no run, or damaged."""
    marker = read_marker(case)
    started_ns, is_redacted = marker.get("started_ns"), marker.get("redacted", True)
    evidence = load_fact(case / "evidence.json", Evidence)
    try:
        if type(started_ns) is not int or type(is_redacted) is not bool:
            raise Unreadable("it does not say when the command was started, or whether it was redacted")
        _check_evidence(evidence)
        names = [channel.name for channel in evidence.channels]
        return replace(evidence, transcripts=read_output(case, names, started_ns, is_redacted=is_redacted))
    except (OSError, Unreadable) as error:
        raise BadCase(f"{case} is damaged: {error}", hint=f"ls {case}") from error


def load_look(path: Path) -> Look:
    """A look that was kept: of a case the last one, else the file. BadCase: there is none, or it is damaged."""
    file = next(reversed(list_kept(path, "look")), path / "look.json") if path.is_dir() else path
    look = load_fact(file, Look)
    try:
        check_look(look)
    except Unreadable as error:
        raise BadCase(f"{file} is damaged: {error}", hint=f"ls {file.parent}") from error
    return look


def list_kept(case: Path, name: str) -> list[Path]:
    """The files NAME.json, NAME-2.json … of a case, in the order in which they were written."""
    numbered = re.compile(rf"{name}(?:-([0-9]{{1,9}}))?\.json")
    try:
        found = {path: numbered.fullmatch(path.name) for path in case.iterdir()}
    except OSError as error:
        raise BadCase(f"{case} cannot be read: {error.strerror}", hint=f"ls {case}") from error
    numbers = {path: int(match[1] or 1) for path, match in found.items() if match}
    return sorted(numbers, key=lambda path: (numbers[path], path.name))


def load_fact(path: Path, kind: type[_Fact]) -> _Fact:
    """One document of a case. BadCase: it is not there, or it is none."""
    try:
        return decode_document(read_bounded(path, follow=False), kind)
    except FileNotFoundError as error:
        raise BadCase(f"There is no {path.name} in {path.parent}.", hint=f"ls {path.parent}") from error
    except (OSError, Unreadable) as error:
        raise BadCase(f"{path} cannot be read: {error}", hint=f"ls {path.parent}") from error


def _check_evidence(evidence: Evidence) -> None:
    """What its types do not say and whoever judges it relies on. Unreadable: it was made up, or is torn."""
    if evidence.schema != EVIDENCE_SCHEMA:
        raise Unreadable(f"its evidence is of another version, {evidence.schema}")
    names = [channel.name for channel in evidence.channels]
    if not all(map(_CHANNEL.fullmatch, names)) or len({*names}) < len(names):
        raise Unreadable("a channel of the output that is none, or is there twice")
    for crash in evidence.crashes:
        if not all(_HEX.fullmatch(word) for word in _list_addresses(crash)):
            raise Unreadable(f"the crash of process {crash.pid}: an address that is none")
        if not _CODE.fullmatch(crash.code or ""):
            raise Unreadable(f"the crash of process {crash.pid}: code that is none")
    courses = _list_courses(evidence.timeline) if evidence.timeline else ()
    if not all(len(course.times_s) == len(course.values) for course in courses):
        raise Unreadable("a course of memory without its times")


def _list_courses(timeline: Timeline) -> Iterator[Course]:
    yield from (timeline.total_rss_bytes, timeline.available_bytes)
    yield from (group.used_bytes for group in timeline.groups)
    for one in timeline.processes:
        yield from (one.rss_bytes, one.swap_bytes, one.threads, one.fds, one.pss_bytes)


def _list_addresses(crash: Crash) -> Iterator[str]:
    """Those that are computed with."""
    yield from (crash.pc, crash.sp, *crash.registers.values(), *crash.raw_frames)
    if crash.fault_address is not None:
        yield crash.fault_address
    for span in crash.mappings:
        yield from (span.start, span.end)
    for image in crash.images:
        yield from (image.base, image.end)
    for thread in crash.threads:
        yield from (word for frame in thread.frames for word in (frame.address, frame.offset) if word is not None)
