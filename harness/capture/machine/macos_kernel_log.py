"""Whom macOS killed for memory: the kernel's memorystatus lines in the unified log, and JetsamEvent reports.

Written from the shapes these have; has never run on a Mac.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from harness.capture.machine.trust import look_for_program
from harness.errors import Unreadable
from harness.evidence.gap import Gap
from harness.evidence.run import KernelLine
from harness.evidence.text.answers import decode_json, read_bounded

_PREDICATE = 'subsystem == "com.apple.xnu" AND category == "memorystatus"'
_BY_HAND = "log show --last 5m --predicate 'category == \"memorystatus\"'"
_REPORTS = Path("/Library/Logs/DiagnosticReports")
_JETSAM = "298"  # bug_type; a crash is 309
_LOG_S = 20.0
_MOST_REPORTS = 20


class _Entry(Struct, frozen=True):
    message: str = field(name="eventMessage", default="")


class _Header(Struct, frozen=True):
    bug_type: str = ""


class _Pages(Struct, frozen=True):
    page_bytes: int = field(name="pageSize", default=0)


class _Killed(Struct, frozen=True):
    """`reason`: only of the one that was killed."""

    pid: int
    name: str = ""
    reason: str = ""
    pages: int = field(name="rpages", default=0)


class _Report(Struct, frozen=True):
    processes: tuple[_Killed, ...]
    memory: _Pages = field(name="memoryStatus", default=_Pages())


def read_kill_lines(started_ns: int) -> tuple[tuple[KernelLine, ...], Gap | None]:
    since_s = (time.monotonic_ns() - started_ns) / 1e9 + 5
    program, why = look_for_program("log")
    if program is None:
        return (), Gap("kernel log", f"log show: {why}", _BY_HAND)
    command = [program, "show", "--style", "ndjson", "--last", f"{since_s:.0f}s", "--predicate", _PREDICATE]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_LOG_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return (), Gap("kernel log", f"log show: {error}", _BY_HAND)
    lines = [*parse_memorystatus(shown.stdout)]
    for path in sorted(_REPORTS.glob("JetsamEvent-*.ips"))[-_MOST_REPORTS:]:
        with contextlib.suppress(OSError, Unreadable):
            if path.stat().st_mtime >= time.time() - since_s:
                lines += parse_jetsam(read_bounded(path).decode(errors="replace"), str(path))
    return tuple(lines), None


def parse_memorystatus(text: str) -> Iterator[KernelLine]:
    """One JSON object a line; what is not one (the closing count) is passed over."""
    for line in text.splitlines():
        with contextlib.suppress(Unreadable):
            message = decode_json(line.encode(errors="replace"), _Entry).message
            if "memorystatus" in message:
                yield KernelLine(message, "log show")


def parse_jetsam(text: str, source: str) -> Iterator[KernelLine]:
    """A header line and a body, both JSON. The killed process is the one that has a reason."""
    head, _, body = text.partition("\n")
    try:
        if decode_json(head.encode(errors="replace"), _Header).bug_type != _JETSAM:
            return
        report = decode_json(body.encode(errors="replace"), _Report)
    except Unreadable:
        return
    for process in report.processes:
        if process.reason:
            mib = process.pages * report.memory.page_bytes >> 20
            words = f"JetsamEvent: killed {process.name} [{process.pid}] {mib} MB, {process.reason}"
            yield KernelLine(words, source)
