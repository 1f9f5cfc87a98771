"""Whom macOS killed for memory: the kernel's memorystatus lines in the unified log, and JetsamEvent reports.

Written from the shapes these have; has never run on a Mac.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.evidence.gap import Gap
from harness.evidence.model import KernelLine

_PREDICATE = 'subsystem == "com.apple.xnu" AND category == "memorystatus"'
_REPORTS = Path("/Library/Logs/DiagnosticReports")
_JETSAM = "298"  # bug_type; a crash is 309
_LOG_S = 20.0
_MOST_REPORTS = 20


def read_kill_lines(started_ns: int) -> tuple[tuple[KernelLine, ...], Gap | None]:
    since_s = (time.monotonic_ns() - started_ns) / 1e9 + 5
    command = ["log", "show", "--style", "ndjson", "--last", f"{since_s:.0f}s", "--predicate", _PREDICATE]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=_LOG_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return (), Gap(
            "kernel log", f"log show: {error}", "log show --last 5m --predicate 'category == \"memorystatus\"'"
        )
    lines = [*parse_memorystatus(shown.stdout)]
    for path in sorted(_REPORTS.glob("JetsamEvent-*.ips"))[-_MOST_REPORTS:]:
        with contextlib.suppress(OSError):
            if path.stat().st_mtime >= time.time() - since_s:
                lines += parse_jetsam(path.read_text(errors="replace"), str(path))
    return tuple(lines), None


def parse_memorystatus(text: str) -> Iterator[KernelLine]:
    """One JSON object a line; what is not one (the closing count) is passed over."""
    for line in text.splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            entry = json.loads(line)
            message = entry.get("eventMessage") if isinstance(entry, dict) else None
            if isinstance(message, str) and "memorystatus" in message:
                yield KernelLine(message, "log show")


def parse_jetsam(text: str, source: str) -> Iterator[KernelLine]:
    """A header line and a body, both JSON. The killed process is the one that has a reason."""
    head, _, body = text.partition("\n")
    try:
        header, report = json.loads(head), json.loads(body)
    except json.JSONDecodeError:
        return
    if not isinstance(header, dict) or not isinstance(report, dict) or header.get("bug_type") != _JETSAM:
        return
    page = _number(report.get("memoryStatus", {}), "pageSize")
    for process in report.get("processes", ()):
        if isinstance(process, dict) and process.get("reason"):
            mib = _number(process, "rpages") * page >> 20
            words = f"JetsamEvent: killed {process.get('name')} [{process.get('pid')}] {mib} MB, {process['reason']}"
            yield KernelLine(words, source)


def _number(values: Any, name: str) -> int:
    value = values.get(name) if isinstance(values, dict) else None
    return value if isinstance(value, int) else 0
